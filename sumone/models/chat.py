"""The one way to speak to a model: a chat prompt in, a text out.

Two implementations: an OpenAI-compatible endpoint (here) and a model in this process
(`sumone.models.local`).
"""

import asyncio
import os
import re
import ssl
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import httpx2
import openai
from pydantic import BaseModel, Field

from sumone.config import EndpointSettings, ModelSettings
from sumone.errors import ConfigError, ModelError
from sumone.models.limits import Limiter, shared_limiter
from sumone.types import ChatMessage, clean_text

__all__ = ["ChatModel", "Completion", "EndpointModel", "open_model"]

_TOKEN_BYTES = 3
"""Bytes of prompt per token, to reserve room under a limit of tokens per minute."""


class Completion(NamedTuple):
    """An answer of a model."""

    text: str
    """What it wrote; empty if nothing."""
    finish_reason: str
    """`stop`: ended by itself; `length`: cut at `max_tokens`; anything else as the model says."""
    prompt_tokens: int
    """Tokens of the prompt as the model counts them; 0 where an endpoint does not say."""
    completion_tokens: int
    """Tokens written; 0 where an endpoint does not say."""


class ChatModel(Protocol):
    """A model that answers a chat prompt."""

    @property
    def name(self) -> str:
        """Which model answers: goes into cache keys and reports."""
        ...

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        schema: dict[str, Any] | None = None,
    ) -> Completion:
        """Answer with at most `max_tokens` tokens; `schema` asks for JSON of that form.

        Raises ModelError when the call failed for good.
        """
        ...

    async def aclose(self) -> None:
        """Release connections or memory."""
        ...


def open_model(settings: ModelSettings) -> ChatModel:
    """The model that the settings name: `path` in this process or `endpoint`.

    Raises ConfigError for both or neither, or a folder that holds no model.
    """
    if (settings.path is None) == (settings.endpoint is None):
        raise ConfigError(
            "a model needs exactly one of `path` (a folder, run in this process) and `endpoint` "
            f"(base_url and model); got {'both' if settings.path else 'neither'}"
        )
    if settings.path is not None:
        from sumone.models.local import LocalModel  # only here: an endpoint needs no torch

        return LocalModel(settings.path, settings.batch_size, settings.dtype)
    return EndpointModel(settings)


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Answer(BaseModel):
    """The parts of a chat completion that count here."""

    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None

    def completion(self) -> Completion:
        choice, usage = self.choices[0], self.usage or _Usage()
        return Completion(
            choice.message.content or "",
            choice.finish_reason or "unknown",
            usage.prompt_tokens,
            usage.completion_tokens,
        )


class EndpointModel:
    """A model behind an OpenAI-compatible endpoint.

    Retries, backoff and Retry-After are those of the `openai` SDK. Models of one endpoint share
    one limiter on each event loop.
    """

    def __init__(self, settings: ModelSettings) -> None:
        if settings.endpoint is None:
            raise ConfigError("an endpoint model needs `endpoint` with base_url and model")
        self.endpoint: EndpointSettings = settings.endpoint
        self.limits = settings.limits
        self.name = settings.endpoint.model
        self._key = _api_key(settings.endpoint)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: openai.AsyncOpenAI | None = None

    @property
    def client(self) -> openai.AsyncOpenAI:
        """The SDK's client, made on first use: its connections belong to the loop it runs on."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._loop = loop
            self._client = openai.AsyncOpenAI(
                base_url=self.endpoint.base_url,
                api_key=self._key,
                timeout=self.limits.call_timeout_seconds,
                max_retries=self.limits.max_retries,
                http_client=openai.DefaultAsyncHttpxClient(verify=_tls()),
            )
        return self._client

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        schema: dict[str, Any] | None = None,
    ) -> Completion:
        """See `ChatModel.complete`. Fields of `extra_body` override those sent here."""
        prompt = [{"role": m["role"], "content": neutral(m["content"])} for m in messages]
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "messages": prompt,
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        if schema is not None:
            form = {"name": "answer", "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        body |= self.endpoint.extra_body
        size = sum(len(m["content"].encode()) for m in prompt)
        async with self.limiter.slot(size // _TOKEN_BYTES + max_tokens):
            try:
                # Not `chat.completions.create`: its conversions are a third of a call's CPU time.
                answer: object = await self.client.post(
                    "/chat/completions", body=body, cast_to=object
                )
                return _Answer.model_validate(answer).completion()
            # ValueError: a body that is no JSON, or JSON that is no chat completion.
            except (openai.OpenAIError, ValueError) as error:
                raise ModelError(f"{self._where()}: {type(error).__name__}: {error}") from error

    @property
    def limiter(self) -> Limiter:
        """The limiter of this endpoint on the running loop."""
        key = f"{self.endpoint.base_url} {self.endpoint.model}"
        return shared_limiter(key, self.limits)

    def _where(self) -> str:
        return f"model {self.endpoint.model} at {self.endpoint.base_url}"

    async def aclose(self) -> None:
        """Close the connections; a later call opens new ones."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.close()


@cache
def _tls() -> ssl.SSLContext:
    """One for all clients: reading the certificates takes longer than a call."""
    return httpx2.create_ssl_context()


_MARKER = re.compile(r"<(?=\|[^|<>\s]{1,40}\|>)")


def neutral(text: str) -> str:
    """Text whose `<|...|>` cannot open a chat turn: some servers parse special tokens in content.

    A space goes between `<` and `|`; lone surrogates become U+FFFD; all else is kept.
    """
    return _MARKER.sub("< ", clean_text(text))


def _api_key(endpoint: EndpointSettings) -> str:
    if not endpoint.api_key_env:
        return "none"  # the SDK wants one; endpoints without keys ignore it
    key = os.environ.get(endpoint.api_key_env)
    if not key:
        raise ConfigError(
            f"endpoint {endpoint.base_url}: environment variable {endpoint.api_key_env} is not "
            "set; put the key there, or leave api_key_env empty for an endpoint without one"
        )
    return key
