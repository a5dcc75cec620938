"""A frozen transformers model in this process: batched greedy decoding with shared prefixes.

Calls that wait at the same time are decoded together in a worker thread, so the event loop
stays live. torch and transformers are imported only when a model is opened.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from sumone.errors import ConfigError, EnvironmentFailure, ModelError, SumOneError
from sumone.models.batching import Batcher, Ready
from sumone.models.chat import Completion
from sumone.models.chat_text import PromptEncoder
from sumone.models.decoding import SharedPrefixDecoder
from sumone.models.likelihood import Answer, Likelihood
from sumone.models.shared_prefix import ATTENTION, register_attention
from sumone.types import ChatMessage

__all__ = ["LocalModel"]

_In = TypeVar("_In")
_Out = TypeVar("_Out")

_ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""Models whose attention is plain enough for shared prefixes: full, causal, rotary."""


class _Job(NamedTuple):
    """One call: an answer to write, or one to score."""

    messages: Sequence[ChatMessage]
    max_tokens: int
    answer: Answer | None = None
    """The answer to score; None: write one of at most `max_tokens`."""
    prompt: tuple[int, ...] = ()
    scored: tuple[int, ...] = ()

    @property
    def room(self) -> int:
        return len(self.scored) if self.answer else self.max_tokens


_Result = Completion | Likelihood
_Batcher = Batcher[_Job, _Result]


class LocalModel:
    """A model folder, run in this process; always greedy."""

    def __init__(self, path: str, batch_size: int, dtype: str) -> None:
        self.name = path
        self.batch_size = batch_size
        self._tokenizer, model = _load(path, dtype)
        self._encoder = PromptEncoder(self._tokenizer)
        self._decoder = SharedPrefixDecoder(model, _end_ids(self._tokenizer, model))
        self._window = int(getattr(model.config, "max_position_embeddings", 1 << 30))
        # One thread: two batches at once would only fight for the same cores.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="local-model")
        self._batchers: WeakKeyDictionary[asyncio.AbstractEventLoop, _Batcher]
        self._batchers = WeakKeyDictionary()

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        schema: dict[str, Any] | None = None,
    ) -> Completion:
        """See `ChatModel.complete`. `schema` is not enforced here: the caller parses."""
        if temperature > 0:
            raise ConfigError(f"{self.name}: a model in this process only decodes greedily")
        result = await self._batcher().call(_Job(messages, max_tokens))
        assert isinstance(result, Completion)
        return result

    async def check_likelihoods(self) -> None:
        """Any model of this process can score answers."""

    async def log_likelihoods(self, answers: Sequence[Answer]) -> list[Likelihood]:
        """Teacher-forced likelihood of each answer; ModelError if one does not fit the model."""
        batcher = self._batcher()
        jobs = [_Job(answer.messages, 0, answer) for answer in answers]
        results = await asyncio.gather(*map(batcher.call, jobs))
        return [result for result in results if isinstance(result, Likelihood)]

    async def aclose(self) -> None:
        """End the worker thread once its running batch is done."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _batcher(self) -> _Batcher:
        loop = asyncio.get_running_loop()
        if loop not in self._batchers:
            prepare, run = self._in_worker(self._encoded), self._in_worker(self._run)
            self._batchers[loop] = Batcher(self.batch_size, prepare, run)
        return self._batchers[loop]

    def _encoded(self, jobs: Sequence[_Job]) -> list[Ready[_Job] | SumOneError]:
        """Jobs with their ids; a ModelError for what does not fit the window."""
        openings = [job.answer.opening if job.answer else "" for job in jobs]
        prompts = self._encoder.prompts([job.messages for job in jobs], openings)
        result: list[Ready[_Job] | SumOneError] = []
        for job, prompt in zip(jobs, prompts, strict=True):
            scored = self._encoder.text(job.answer.text) if job.answer else []
            ready = job._replace(prompt=tuple(prompt), scored=tuple(scored))
            if not prompt or len(prompt) + ready.room > self._window:
                result.append(
                    ModelError(
                        f"model {self.name}: a prompt of {len(prompt)} tokens and an answer of "
                        f"{ready.room} do not fit its window of {self._window}"
                    )
                )
            else:
                result.append(Ready((job.answer is not None, prompt + scored), ready))
        return result

    def _run(self, batch: Sequence[Ready[_Job]]) -> list[_Result]:
        """One batch of jobs of one kind."""
        jobs = [item.given for item in batch]
        prompts = [job.prompt for job in jobs]
        if jobs[0].answer is not None:
            nats = self._decoder.log_likelihoods(prompts, [job.scored for job in jobs])
            return [Likelihood(n, len(job.scored)) for n, job in zip(nats, jobs, strict=True)]
        decoded = self._decoder.generate(prompts, [job.max_tokens for job in jobs])
        texts = self._tokenizer.batch_decode(
            [one.ids for one in decoded],
            skip_special_tokens=True,
            clean_up_tokenization_spaces=False,
        )
        return [
            Completion(text, "stop" if one.ended else "length", len(prompt), len(one.ids))
            for prompt, one, text in zip(prompts, decoded, texts, strict=True)
        ]

    def _in_worker(self, work: Callable[[_In], _Out]) -> Callable[[_In], Awaitable[_Out]]:
        """`work` in the worker thread; whatever it raises becomes a ModelError."""

        async def call(given: _In) -> _Out:
            try:
                return await asyncio.get_running_loop().run_in_executor(self._worker, work, given)
            except SumOneError:
                raise
            # The boundary of the model: callers wait for their futures, whatever happens here.
            except Exception as error:
                raise ModelError(f"model {self.name}: {type(error).__name__}: {error}") from error

        return call


def _load(path: str, dtype: str) -> tuple[Any, Any]:
    """Tokenizer and model of a folder, ready for shared prefixes."""
    try:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging as transformers_logging
    except ImportError as error:
        raise EnvironmentFailure(
            f"running {path} in this process needs torch and transformers: "
            "pip install 'sumone[train]', or give an endpoint"
        ) from error
    if not (Path(path) / "config.json").is_file():
        raise ConfigError(f"no model at {path}: give a folder that holds config.json")
    config = AutoConfig.from_pretrained(path, local_files_only=True)
    layers = set(getattr(config, "layer_types", None) or ["full_attention"])
    if config.model_type not in _ARCHITECTURES or layers != {"full_attention"}:
        raise ConfigError(
            f"the model in {path} ({config.model_type}, {', '.join(sorted(layers))}) cannot run "
            f"in this process, which knows full attention of {', '.join(_ARCHITECTURES)}: serve "
            "it (for example with vLLM) and give its endpoint"
        )
    on_gpu = torch.cuda.is_available()
    # bfloat16 products are about a hundred times slower on many CPUs.
    chosen = "float32" if not on_gpu else "bfloat16" if dtype == "auto" else dtype
    register_attention()
    # stderr carries our progress; a bar per model that is opened would only be in its way.
    transformers_logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(
        path,
        dtype=getattr(torch, chosen),
        attn_implementation=ATTENTION,
        local_files_only=True,
    )
    return tokenizer, model.to("cuda" if on_gpu else "cpu").eval()


def _end_ids(tokenizer: Any, model: Any) -> frozenset[int]:
    """Tokens that end an answer: those of the generation settings and the tokenizer's own."""
    found: set[int] = set()
    for value in (model.generation_config.eos_token_id, tokenizer.eos_token_id):
        found |= set(value) if isinstance(value, list) else {value} if value is not None else set()
    if not found:
        raise ConfigError(f"the model in {tokenizer.name_or_path} has no end token")
    return frozenset(found)
