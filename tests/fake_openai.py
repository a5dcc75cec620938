"""A real OpenAI-compatible server for tests: it answers, stalls, refuses, cuts and babbles.

    with FakeOpenAI(lambda request: "hello") as server:
        EndpointModel(ModelSettings(endpoint={"base_url": server.url, "model": "fake"}))
        server.requests  # what arrived

It listens on the loopback interface, on a free port, in a thread of its own.
"""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

__all__ = ["Cut", "FakeOpenAI", "Garbage", "Raw", "Received", "Refuse", "Reply", "Stall", "Text"]


@dataclass(frozen=True)
class Received:
    """One request as it arrived."""

    number: int
    """From 0, in order of arrival."""
    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    time: float
    """`time.monotonic()` at arrival."""

    @property
    def prompt(self) -> str:
        """All message contents, joined."""
        return "\n".join(str(message["content"]) for message in self.body.get("messages", ()))


@dataclass(frozen=True)
class Text:
    """An ordinary answer."""

    text: str | None
    finish_reason: str = "stop"
    seconds: float = 0.0
    """Time it takes."""
    usage: dict[str, Any] | None = field(
        default_factory=lambda: {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    )


@dataclass(frozen=True)
class Stall:
    """No answer for so long."""

    seconds: float = 3600.0


@dataclass(frozen=True)
class Refuse:
    """An error status; `retry_after` in seconds goes into the headers."""

    status: int = 429
    retry_after: float | None = None


@dataclass(frozen=True)
class Cut:
    """The connection breaks in the middle of the body."""


@dataclass(frozen=True)
class Garbage:
    """A body that is no answer."""

    text: str = "<html>gateway</html>"
    content_type: str = "application/json"
    status: int = 200


@dataclass(frozen=True)
class Raw:
    """Any JSON body."""

    body: Any


Reply = str | Text | Stall | Refuse | Cut | Garbage | Raw
Answer = Callable[[Received], Reply | Awaitable[Reply]]


class FakeOpenAI:
    """The server; `answer` decides each reply and may be a coroutine function."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests: list[Received] = []
        self.num_open = 0
        """Requests being answered now."""
        self.most_open = 0
        """Most requests that were being answered at once."""

    def __enter__(self) -> "FakeOpenAI":
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        paths = ("/v1/chat/completions", "/v1/completions", "/tokenize", "/v1/tokenize")
        app = Starlette(routes=[Route(path, self._handle, methods=["POST"]) for path in paths])
        config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_keep_alive=60)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + 10
        while not self._server.started:
            if time.monotonic() > deadline:
                raise RuntimeError("the fake server did not start")
            time.sleep(0.002)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)
        self._socket.close()

    @property
    def root(self) -> str:
        """Address of the server."""
        host, port = self._socket.getsockname()
        return f"http://{host}:{port}"

    @property
    def url(self) -> str:
        """Base URL for a client."""
        return f"{self.root}/v1"

    async def _handle(self, request: Request) -> Response:
        body = await request.json()
        received = Received(
            len(self.requests),
            request.url.path,
            body,
            dict(request.headers),
            time.monotonic(),
        )
        self.requests.append(received)
        self.num_open += 1
        self.most_open = max(self.most_open, self.num_open)
        try:
            reply = self._answer(received)
            if not isinstance(reply, str | Text | Stall | Refuse | Cut | Garbage | Raw):
                reply = await reply
            return await self._respond(reply, body)
        finally:
            self.num_open -= 1

    async def _respond(self, reply: Reply, body: dict[str, Any]) -> Response:
        if isinstance(reply, str):
            reply = Text(reply)
        if isinstance(reply, Stall):
            await asyncio.sleep(reply.seconds)
            return Response(status_code=504)
        if isinstance(reply, Refuse):
            headers = {}
            if reply.retry_after is not None:
                headers["retry-after-ms"] = str(round(reply.retry_after * 1000))
                headers["retry-after"] = str(reply.retry_after)
            error = {"error": {"message": f"refused with {reply.status}", "type": "fake"}}
            return JSONResponse(error, reply.status, headers)
        if isinstance(reply, Cut):
            return _CutResponse()
        if isinstance(reply, Garbage):
            return Response(reply.text, reply.status, media_type=reply.content_type)
        if isinstance(reply, Raw):
            return JSONResponse(reply.body)
        if reply.seconds:
            await asyncio.sleep(reply.seconds)
        if body.get("stream"):
            return StreamingResponse(_events(reply, body), media_type="text/event-stream")
        message = {"role": "assistant", "content": reply.text}
        choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
        answer = _envelope(body, "chat.completion") | {"choices": [choice], "usage": reply.usage}
        return JSONResponse(answer)


class _CutResponse(Response):
    """Promises more bytes than it sends: the server then drops the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"id": "cut', "more_body": True})


def _envelope(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "fake", "object": kind, "created": 0, "model": body.get("model", "fake")}


async def _events(reply: Text, body: dict[str, Any]) -> AsyncIterator[str]:
    """The answer as server-sent events, a few characters each."""
    text = reply.text or ""
    pieces = [text[i : i + 8] for i in range(0, len(text), 8)]
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant"}, None)]
    deltas += [({"content": piece}, None) for piece in pieces]
    deltas.append(({}, reply.finish_reason))
    for delta, reason in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        event = _envelope(body, "chat.completion.chunk") | {"choices": [choice]}
        yield f"data: {json.dumps(event)}\n\n"
    if body.get("stream_options", {}).get("include_usage"):
        event = _envelope(body, "chat.completion.chunk") | {"choices": [], "usage": reply.usage}
        yield f"data: {json.dumps(event)}\n\n"
    yield "data: [DONE]\n\n"
