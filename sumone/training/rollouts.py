"""Sampling the policy with the samples of a prompt sharing its keys and values (Table 7: G = 8).

transformers would read each prompt once a sample and keep all of them to the last token of the
longest; here a prompt is read once, and a sample leaves the batch when it ends. On a CPU this is
less than half the time. TRL takes it as its `rollout_func`; where the model or the sampling
options are not plain enough, TRL generates by itself.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import is_peft_model
from trl import GRPOConfig, GRPOTrainer

from sumone.models.decoding import SharedPrefixDecoder
from sumone.models.shared_prefix import ATTENTION, register_attention
from sumone.training.decoding import encode_prompts

__all__ = ["SharedPrefixRollouts", "shares_prefixes"]

_ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""Models whose attention is plain enough: full, causal, rotary."""


def shares_prefixes(arguments: GRPOConfig, model_config: Any) -> bool:
    """Whether this policy can be sampled with shared prefixes under these options."""
    layers = set(getattr(model_config, "layer_types", None) or ["full_attention"])
    plain_sampling = (
        arguments.top_p == 1.0
        and not arguments.top_k
        and arguments.min_p is None
        and arguments.repetition_penalty == 1.0
        and not arguments.generation_kwargs
    )
    return (
        arguments.use_cpu
        and not arguments.use_vllm
        and not arguments.use_transformers_continuous_batching
        and plain_sampling
        and model_config.model_type in _ARCHITECTURES
        and layers == {"full_attention"}
    )


class SharedPrefixRollouts:
    """A `rollout_func` of TRL; also decodes greedily for the held-out evaluation."""

    def __init__(self) -> None:
        register_attention()

    def __call__(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        """Completions of the prompts, one for each entry, sampled at the training temperature."""
        prompt_ids = encode_prompts(trainer.processing_class, prompts, trainer.chat_template_kwargs)
        completion_ids = self.complete(trainer, prompt_ids, temperature=trainer.temperature)
        # No log-probabilities: sampler and trainer are the same float32 model.
        return {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": None}

    def complete(
        self, trainer: GRPOTrainer, prompt_ids: Sequence[list[int]], *, temperature: float
    ) -> list[list[int]]:
        """Completion ids in order, with the end token where there is one; temperature 0: greedy."""

        def sample(logits: torch.Tensor) -> torch.Tensor:
            return torch.multinomial((logits / temperature).softmax(-1), 1)[:, 0]

        with _shared_attention(trainer) as model:
            decoder = SharedPrefixDecoder(
                model, frozenset(trainer.eos_token_ids), sample if temperature > 0 else None
            )
            limits = [trainer.max_completion_length] * len(prompt_ids)
            decoded = decoder.generate(prompt_ids, limits)
        return [one.ids if one.end_id is None else [*one.ids, one.end_id] for one in decoded]


@contextmanager
def _shared_attention(trainer: GRPOTrainer) -> Iterator[Any]:
    """The policy, for a while with the attention that shares prefixes and without dropout."""
    policy = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    model = policy.get_base_model() if is_peft_model(policy) else policy
    training, usual = policy.training, model.config._attn_implementation
    policy.eval()
    model.set_attn_implementation(ATTENTION)
    try:
        yield model
    finally:
        model.set_attn_implementation(usual)
        policy.train(training)
