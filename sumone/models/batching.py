"""Calls that wait at the same time on one event loop, run together in a worker thread."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from sumone.errors import SumOneError

__all__ = ["Batcher", "Ready"]

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")


class _Call(NamedTuple, Generic[_Given, _Result]):
    given: _Given
    future: "asyncio.Future[_Result]"


class Ready(NamedTuple, Generic[_Given]):
    """A call prepared for its batch."""

    key: tuple[object, list[int]]
    """Kind, then token ids: batches are runs of one kind in this order, so that neighbours share
    the longest beginnings."""
    given: _Given


class Batcher(Generic[_Given, _Result]):
    """Collects calls of one loop into batches of at most `size`."""

    def __init__(
        self,
        size: int,
        prepare: Callable[[Sequence[_Given]], Awaitable[Sequence[Ready[_Given] | SumOneError]]],
        run: Callable[[Sequence[Ready[_Given]]], Awaitable[Sequence[_Result]]],
    ) -> None:
        self._size = size
        self._prepare = prepare
        self._run = run
        self._waiting: list[_Call[_Given, _Result]] = []
        self._task: asyncio.Task[None] | None = None

    async def call(self, given: _Given) -> _Result:
        """The result of one call; its error if it or its batch failed."""
        loop = asyncio.get_running_loop()
        call: _Call[_Given, _Result] = _Call(given, loop.create_future())
        self._waiting.append(call)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._work())
        return await call.future

    async def _work(self) -> None:
        """Run batch after batch until nothing waits."""
        ready: list[tuple[Ready[_Given], _Call[_Given, _Result]]] = []
        while True:
            await self._settle()
            calls, self._waiting = self._waiting, []
            if calls:
                ready += await self._prepared(calls)
                ready.sort(key=lambda pair: pair[0].key)
            ready = [pair for pair in ready if not pair[1].future.done()]
            if not ready:
                self._task = None  # a task kept here would keep its loop alive
                return
            kind = ready[0][0].key[0]
            count = 1
            while count < min(self._size, len(ready)) and ready[count][0].key[0] == kind:
                count += 1
            batch, ready = ready[:count], ready[count:]
            try:
                results = await self._run([item for item, _ in batch])
            except SumOneError as error:
                for _, call in batch:
                    _fail(call, error)
                continue
            for (_, call), result in zip(batch, results, strict=True):
                if not call.future.done():
                    call.future.set_result(result)

    async def _settle(self) -> None:
        """Let tasks that are about to call join the batch."""
        before = -1
        while before != len(self._waiting):
            before = len(self._waiting)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def _prepared(
        self, calls: Sequence[_Call[_Given, _Result]]
    ) -> list[tuple[Ready[_Given], _Call[_Given, _Result]]]:
        try:
            prepared = await self._prepare([call.given for call in calls])
        except SumOneError as error:
            prepared = [error] * len(calls)
        ready: list[tuple[Ready[_Given], _Call[_Given, _Result]]] = []
        for item, call in zip(prepared, calls, strict=True):
            if isinstance(item, SumOneError):
                _fail(call, item)
            else:
                ready.append((item, call))
        return ready


def _fail(call: _Call[_Given, _Result], error: SumOneError) -> None:
    if not call.future.done():
        call.future.set_exception(error)
