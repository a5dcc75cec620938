"""Greedy summaries of the policy in training (Table 7: evaluation temperature 0).

TRL's own evaluation would sample at the training temperature, so the held-out evaluation decodes
here: through TRL's vLLM engine where it has one, with shared prefixes where the policy is sampled
so, with transformers elsewhere.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import GenerationConfig
from trl import GRPOTrainer
from trl.models.utils import unwrap_model_for_generation

from sumone.types import ChatMessage

__all__ = ["encode_prompts", "greedy_completions"]


def encode_prompts(
    tokenizer: Any, prompts: Sequence[list[ChatMessage]], template_options: dict[str, Any]
) -> list[list[int]]:
    """Token ids of prompts as TRL makes them: chat template with a generation prompt."""
    encoded = tokenizer.apply_chat_template(
        conversation=list(prompts),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        **template_options,
    )
    return [list(ids) for ids in encoded["input_ids"]]


def greedy_completions(
    trainer: GRPOTrainer, prompt_ids: Sequence[list[int]], *, batch_size: int
) -> list[list[int]]:
    """Greedy completion ids of each prompt, in order, with the end token where there is one."""
    if trainer.use_vllm:
        return _by_vllm(trainer, prompt_ids)
    # Prompts of similar length share a batch: little padding.
    order = sorted(range(len(prompt_ids)), key=lambda i: len(prompt_ids[i]))
    found: dict[int, list[int]] = {}
    if trainer.rollout_func is not None:
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            part = [prompt_ids[i] for i in batch]
            completions = trainer.rollout_func.complete(trainer, part, temperature=0.0)
            found.update(zip(batch, completions, strict=True))
        return [found[i] for i in range(len(prompt_ids))]
    with _generating_model(trainer) as model:
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            completions = _generate(trainer, model, [prompt_ids[i] for i in batch])
            found.update(zip(batch, completions, strict=True))
    return [found[i] for i in range(len(prompt_ids))]


@contextmanager
def _generating_model(trainer: GRPOTrainer) -> Iterator[Any]:
    training = trainer.model.training
    with (
        unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
            generation_kwargs=trainer.generation_kwargs,
            gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
        ) as model,
        torch.no_grad(),
        trainer._dist.summon_full_params(trainer.model_wrapped, recurse=False),
    ):
        model.eval()
        try:
            yield model
        finally:
            model.train(training)


def _generate(trainer: GRPOTrainer, model: Any, prompts: list[list[int]]) -> list[list[int]]:
    device = trainer.accelerator.device
    pad = trainer._tokenizer.pad_token_id
    width = max(len(ids) for ids in prompts)
    rows = [[pad] * (width - len(ids)) + ids for ids in prompts]
    seen = [[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]
    output = model.generate(
        input_ids=torch.tensor(rows, device=device),
        attention_mask=torch.tensor(seen, device=device),
        generation_config=GenerationConfig(
            max_new_tokens=trainer.max_completion_length,
            do_sample=False,
            # The model's own configuration may carry sampling options; greedy has none.
            temperature=None,
            top_p=None,
            top_k=None,
            pad_token_id=pad,
            eos_token_id=trainer.eos_token_ids,
            disable_compile=True,
        ),
    )
    ends = frozenset(trainer.eos_token_ids)
    return [_until_end(row, ends) for row in output[:, width:].tolist()]


def _until_end(ids: list[int], ends: frozenset[int]) -> list[int]:
    for position, token in enumerate(ids):
        if token in ends:
            return ids[: position + 1]
    return ids


def _by_vllm(trainer: GRPOTrainer, prompt_ids: Sequence[list[int]]) -> list[list[int]]:
    engine = trainer.vllm_generation
    # The engine starts with the weights on disk; only a trained policy must be sent to it.
    if trainer.state.global_step not in (0, trainer._last_loaded_step):
        engine.sync_weights()
        trainer._last_loaded_step = trainer.state.global_step
    sampling = engine.temperature
    engine.temperature = 0.0
    try:
        _, completion_ids, _, _ = engine.generate(
            prompts=list(prompt_ids), images=None, num_generations=1
        )
    finally:
        engine.temperature = sampling
    return [list(ids) for ids in completion_ids]
