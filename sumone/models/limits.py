"""Limits of one endpoint: calls in flight, calls and tokens started within a minute."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from sumone.config import LimitSettings
from sumone.errors import ConfigError

__all__ = ["Limiter", "shared_limiter"]


class Limiter:
    """Admits calls in order of arrival; belongs to one event loop.

    A retry made inside the SDK holds its slot and is not counted anew.
    """

    def __init__(self, limits: LimitSettings, *, window_seconds: float = 60.0) -> None:
        self.limits = limits
        self._window = window_seconds
        self._in_flight = asyncio.Semaphore(limits.concurrency)
        self._turn = asyncio.Lock()
        self._started: deque[tuple[float, int]] = deque()
        self._tokens = 0

    @asynccontextmanager
    async def slot(self, num_tokens: int) -> AsyncIterator[None]:
        """Hold one place in flight, entered when the limits per minute allow the call."""
        async with self._in_flight:
            if self.limits.requests_per_minute or self.limits.tokens_per_minute:
                async with self._turn:  # one waiter at a time keeps the order
                    await self._admit(num_tokens)
            yield

    async def _admit(self, num_tokens: int) -> None:
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            while self._started and self._started[0][0] <= now - self._window:
                self._tokens -= self._started.popleft()[1]
            if self._fits(num_tokens):
                break
            await asyncio.sleep(max(0.0, self._started[0][0] + self._window - now))
        self._started.append((now, num_tokens))
        self._tokens += num_tokens

    def _fits(self, num_tokens: int) -> bool:
        if not self._started:
            return True  # a call above the limit goes alone instead of never
        requests, tokens = self.limits.requests_per_minute, self.limits.tokens_per_minute
        if requests is not None and len(self._started) >= requests:
            return False
        return tokens is None or self._tokens + num_tokens <= tokens


_limiters: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Limiter]] = WeakKeyDictionary()


def shared_limiter(endpoint: str, limits: LimitSettings) -> Limiter:
    """The limiter of an endpoint on the running loop; ConfigError if it has other limits."""
    known = _limiters.setdefault(asyncio.get_running_loop(), {})
    limiter = known.setdefault(endpoint, Limiter(limits))
    for name in ("concurrency", "requests_per_minute", "tokens_per_minute"):
        if getattr(limiter.limits, name) != getattr(limits, name):
            raise ConfigError(
                f"endpoint {endpoint} is used twice with different limits ({name}: "
                f"{getattr(limiter.limits, name)} and {getattr(limits, name)}): its limits hold "
                "for all its users together, so give the same ones in both places"
            )
    return limiter
