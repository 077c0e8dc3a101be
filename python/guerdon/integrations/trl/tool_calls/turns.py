"""The tool calls of a batch, turn by turn: those of all samples of a turn run concurrently.

TRL's synchronous trainers go sample by sample: call its tools, wait, go on. `ToolTurns` is between
them: at the trainer's first question of a turn the calls of all samples start. Within a sample,
sync calls and those of an environment run in call order, then async ones together; the trainer gets
results in call order. A tool that is not a proxy runs as in TRL: a sync one on the trainer's
thread, an async one on its loop. At the end no call of a batch runs on, however it ended.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any

from guerdon.integrations._event_loop_thread import EventLoopThread
from guerdon.integrations.trl.tool_calls.environments import owner_of
from guerdon.integrations.trl.tool_calls.proxies import launcher_of

__all__ = ["ToolTurns", "runs_in_order"]

ToolFunction = Callable[..., Any]
# Seconds that the end of a batch waits for cancelled calls.
_END_S = 5.0


class _TurnCall:
    """A call of a turn.

    Attributes:
        ordered: Whether it runs in call order; else at the end, with others at once.
        plain: Whether the trainer's thread runs it.
        before: The call of its sample that has to end first.
        future: Its result.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any], tool: ToolFunction) -> None:
        self.name = name
        self.arguments = arguments
        self.tool = tool
        self.launch = launcher_of(tool)
        self.awaited = inspect.iscoroutinefunction(tool)
        self.ordered = runs_in_order(tool)
        self.plain = self.launch is None and not self.awaited
        self.before: _TurnCall | None = None
        self.future: Future[Any] = Future()

    def run_here(self) -> None:
        """Runs a plain call on this thread, after those before it in its sample."""
        if self.before is not None:
            wait([self.before.future])
        try:
            self.future.set_result(self.tool(**self.arguments))
        except Exception as error:
            self.future.set_exception(error)


class ToolTurns:
    """The tool calls of one batch.

    Args:
        completions: The trainer's own list, one list of messages a sample, which it extends turn by
            turn.
        sync_tools: For each sample its sync tools by name.
        async_tools: For each sample its coroutine functions by name.
        own_loop: Gives the loop on which the trainer runs plain coroutine functions.
    """

    def __init__(
        self,
        completions: Sequence[Sequence[Mapping[str, Any]]],
        sync_tools: Sequence[Mapping[str, ToolFunction]],
        async_tools: Sequence[Mapping[str, ToolFunction]],
        own_loop: Callable[[], asyncio.AbstractEventLoop],
    ) -> None:
        self._completions = completions
        self._tools = [{**late, **soon} for soon, late in zip(sync_tools, async_tools, strict=True)]
        self._own_loop = own_loop
        self._pending: list[deque[_TurnCall]] = [deque() for _ in completions]
        self._asked: list[list[_TurnCall]] = [[] for _ in completions]  # all calls of the turn
        self._begun: list[Any] = [None] * len(completions)  # the last message whose calls started
        self._loop = EventLoopThread("guerdon tool turns", patience=_END_S)

    def stand_ins(self) -> list[dict[str, ToolFunction]]:
        """Returns for each sample its tools by name, as sync functions that wait for the started
        calls."""
        return [
            {name: functools.partial(self._collect, sample, name) for name in tools}
            for sample, tools in enumerate(self._tools)
        ]

    def end(self) -> None:
        """Cancels the running calls and ends the loop."""
        self._loop.close()

    def _collect(self, sample: int, name: str, /, **arguments: Any) -> Any:
        if not self._pending[sample]:
            self._start_turn()
        pending = self._pending[sample]
        if not pending or pending[0].name != name:
            # The trainer asks for a call that no message has: give it that call.
            return self._alone(_TurnCall(name, arguments, self._tools[sample][name]))
        call = pending.popleft()
        for other in self._asked[sample]:
            if other.plain and not other.future.done():
                other.run_here()
            if other is call and call.ordered:  # the others wait for all of these
                break
        return call.future.result()

    def _alone(self, call: _TurnCall) -> Any:
        if call.launch is not None:
            return call.launch((), call.arguments).result()
        if call.awaited:
            return asyncio.run_coroutine_threadsafe(call.tool(**call.arguments), self._own_loop()).result()
        return call.tool(**call.arguments)

    def _start_turn(self) -> None:
        """Starts the calls of every sample that has new ones."""
        for sample, messages in enumerate(self._completions):
            last = messages[-1] if messages else None
            if last is None or last is self._begun[sample] or not last.get("tool_calls"):
                continue
            self._begun[sample] = last
            calls = self._calls_of(sample, last["tool_calls"])
            self._pending[sample], self._asked[sample] = deque(calls), calls
            before = None
            for call in sorted(calls, key=lambda one: not one.ordered):
                call.before = before
                if not call.plain:
                    call.future = self._loop.start(self._run(call))
                before = call if call.ordered else before

    def _calls_of(self, sample: int, tool_calls: Sequence[Mapping[str, Any]]) -> list[_TurnCall]:
        """The calls that the trainer will ask for; it answers unknown names and bad arguments
        itself."""
        calls = []
        for tool_call in tool_calls:
            if tool_call.get("type") != "function":
                continue
            function: Mapping[str, Any] = tool_call.get("function") or {}
            name, arguments = str(function.get("name")), function.get("arguments")
            tool = self._tools[sample].get(name)
            if tool is None or not isinstance(arguments, Mapping):
                continue
            if all(isinstance(key, str) for key in arguments):
                calls.append(_TurnCall(name, dict(arguments), tool))
        return calls

    async def _run(self, call: _TurnCall) -> Any:
        try:
            if call.before is not None:
                await asyncio.gather(asyncio.wrap_future(call.before.future), return_exceptions=True)
            if call.launch is not None:
                return await call.launch((), call.arguments).aresult()
            theirs = asyncio.run_coroutine_threadsafe(call.tool(**call.arguments), self._own_loop())
            return await asyncio.wrap_future(theirs)
        except Exception:
            raise
        except BaseException as error:  # perhaps the tool's own, which must not end the loop
            raise RuntimeError(repr(error)) from None


def runs_in_order(tool: ToolFunction) -> bool:
    """Returns whether such calls of a turn run one after the other: sync ones, and all of an
    environment, whose state the next call sees."""
    return not inspect.iscoroutinefunction(tool) or owner_of(getattr(tool, "__self__", None)) is not None
