"""Teacher-forced likelihoods: what a model of this process or a vLLM server can measure."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import openai

from sumone.errors import ConfigError, ModelError
from sumone.models.chat import ChatModel, EndpointModel, neutral
from sumone.types import ChatMessage

__all__ = ["Answer", "EndpointLikelihoods", "Likelihood", "LikelihoodModel", "likelihood_model"]


class Answer(NamedTuple):
    """A prompt and an answer whose likelihood is asked for."""

    messages: Sequence[ChatMessage]
    opening: str
    """Beginning of the answer that is given, not scored."""
    text: str
    """The scored part of the answer."""


class Likelihood(NamedTuple):
    """How likely a model finds an answer."""

    nats: float
    """Natural log-likelihood of the scored part."""
    num_tokens: int
    """Its length in the model's tokens."""


@runtime_checkable
class LikelihoodModel(Protocol):
    """A model that can score an answer without writing one."""

    @property
    def name(self) -> str:
        """Which model."""
        ...

    async def check_likelihoods(self) -> None:
        """Raise ConfigError if this model cannot score answers."""
        ...

    async def log_likelihoods(self, answers: Sequence[Answer]) -> list[Likelihood]:
        """Likelihood of each answer, in order; ModelError if the call failed for good."""
        ...


def likelihood_model(model: ChatModel) -> LikelihoodModel:
    """The model as one that scores answers; ConfigError if it cannot."""
    if isinstance(model, LikelihoodModel):
        return model
    if isinstance(model, EndpointModel):
        return EndpointLikelihoods(model)
    raise ConfigError(f"model {model.name} cannot score answers: use a folder or a vLLM endpoint")


class EndpointLikelihoods:
    """vLLM: its `/tokenize` gives the ids, its completions the `prompt_logprobs`."""

    def __init__(self, model: EndpointModel) -> None:
        self.name = model.name
        self._model = model

    async def check_likelihoods(self) -> None:
        """Score one word; ConfigError if the server does not give `prompt_logprobs`."""
        question: ChatMessage = {"role": "user", "content": "Say yes."}
        try:
            await self._likelihood(Answer([question], "", "yes"))
        except ModelError as error:
            raise ConfigError(
                "reward.objective information_gain needs a reconstructor in this process (path) "
                "or a vLLM endpoint with /tokenize and completions with prompt_logprobs; "
                f"{self._model.endpoint.base_url} is none: {error}"
            ) from error

    async def log_likelihoods(self, answers: Sequence[Answer]) -> list[Likelihood]:
        """One call per answer, within the endpoint's limits."""
        return list(await asyncio.gather(*map(self._likelihood, answers)))

    async def _likelihood(self, answer: Answer) -> Likelihood:
        messages = [{"role": m["role"], "content": neutral(m["content"])} for m in answer.messages]
        extra = self._model.endpoint.extra_body.get("chat_template_kwargs", {})
        thinking = {"enable_thinking": False, **extra}
        async with self._model.limiter.slot(sum(len(m["content"]) for m in messages) // 3):
            try:
                prompt = await self._tokenize(
                    messages=messages, add_generation_prompt=True, chat_template_kwargs=thinking
                )
                prompt += await self._text(answer.opening)
                scored = await self._text(answer.text)
                result = await self._model.client.completions.create(
                    model=self._model.endpoint.model,
                    prompt=prompt + scored,
                    max_tokens=1,
                    temperature=0,
                    extra_body={"prompt_logprobs": 0},
                )
            except (openai.OpenAIError, ValueError) as error:
                raise ModelError(f"model {self.name}: {type(error).__name__}: {error}") from error
        return Likelihood(_sum(result, prompt, scored, self.name), len(scored))

    async def _text(self, text: str) -> list[int]:
        if not text:
            return []
        return await self._tokenize(prompt=neutral(text), add_special_tokens=False)

    async def _tokenize(self, **body: Any) -> list[int]:
        # vLLM serves it beside /v1, not below.
        root = self._model.endpoint.base_url.rstrip("/").removesuffix("/v1")
        answer: Any = await self._model.client.post(
            f"{root}/tokenize",
            body={"model": self._model.endpoint.model, **body},
            cast_to=object,
        )
        tokens = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise ModelError(f"model {self.name}: /tokenize answered without token ids")
        return list(tokens)


def _sum(result: object, prompt: Sequence[int], scored: Sequence[int], name: str) -> float:
    """Sum of the scored tokens' log-probabilities; ModelError where one is missing."""
    try:
        entries = result.choices[0].model_extra["prompt_logprobs"]  # type: ignore[attr-defined]
        if len(entries) != len(prompt) + len(scored):
            raise ValueError("one entry per token expected")
        values = [
            float(entry[str(token)]["logprob"])
            for entry, token in zip(entries[len(prompt) :], scored, strict=True)
        ]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"model {name}: no usable prompt_logprobs in the answer ({type(error).__name__})"
        ) from error
    total = math.fsum(values)
    if not math.isfinite(total):
        raise ModelError(f"model {name}: a log-probability in the answer is not finite")
    return total
