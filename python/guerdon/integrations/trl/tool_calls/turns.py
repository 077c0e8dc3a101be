"""The tool calls of a batch, turn by turn: those of all samples of a turn run concurrently.

TRL's synchronous trainers go sample by sample: call its tools, wait, go on. `ToolTurns` is between
them: at the trainer's first question of a turn the calls of all samples start. Within a sample,
sync calls and those of an environment run in call order, then async ones together; the trainer gets
results in call order. Tools that are not proxies run as in TRL, and so do all calls of a sample in
a turn that names one. At the end no call of a batch runs on, however it ended.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from guerdon.integrations._event_loop_thread import EventLoopThread
from guerdon.integrations.trl.tool_calls.environments import owner_of
from guerdon.integrations.trl.tool_calls.executor import CallCounter, PendingCall
from guerdon.integrations.trl.tool_calls.proxies import Launcher, launcher_of

ToolsByName = Mapping[str, Callable[..., Any]]
# Seconds that the end of a batch waits for cancelled calls.
_END_S = 5.0


class _TurnCall(NamedTuple):
    """A call of a turn that was started, and its result."""

    name: str
    launch: Launcher
    arguments: Mapping[str, Any]
    ordered: bool
    future: Future[Any]


class ToolTurns:
    """The tool calls of one batch.

    Args:
        completions: The trainer's own list, one list of messages a sample, which it extends turn by
            turn.
        tools: For each sample its tools by name, sync and async.

    Attributes:
        counter: The counts of the calls.
    """

    def __init__(self, completions: Sequence[Sequence[Mapping[str, Any]]], tools: Sequence[ToolsByName]) -> None:
        self._completions = completions
        self._tools = tools
        self.counter = CallCounter()
        # The calls of each sample that were started and not collected, and their message.
        self._started: list[deque[_TurnCall]] = [deque() for _ in completions]
        self._begun: list[Any] = [None] * len(completions)
        self._loop = EventLoopThread("guerdon tool turns", patience=_END_S)

    def stand_ins(self) -> list[dict[str, Callable[..., Any]]]:
        """Returns for each sample its proxies by name, as sync functions that wait for the started
        calls."""
        return [
            {
                name: functools.partial(self._collect, sample, name, launch)
                for name, tool in tools.items()
                if (launch := launcher_of(tool)) is not None
            }
            for sample, tools in enumerate(self._tools)
        ]

    def end(self) -> None:
        """Cancels the running calls and ends the loop."""
        self._loop.close()

    def _collect(self, sample: int, name: str, launch: Launcher, /, **arguments: Any) -> Any:
        started = self._started[sample]
        if not started:
            self._start_turn()
        if not started or started[0].name != name:
            return self._launched(launch, arguments).result()
        return started.popleft().future.result()

    def _start_turn(self) -> None:
        """Starts the calls of every sample that has new ones."""
        for sample, messages in enumerate(self._completions):
            last = messages[-1] if messages else None
            if last is None or last is self._begun[sample] or not last.get("tool_calls"):
                continue
            self._begun[sample] = last
            calls = self._calls_of(sample, last["tool_calls"])
            self._started[sample].clear()
            self._started[sample].extend(calls)
            if calls:
                self._loop.start(self._run(calls))

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
            launch = launcher_of(tool)
            if launch is None:
                return []
            if all(isinstance(key, str) for key in arguments):
                calls.append(_TurnCall(name, launch, dict(arguments), _runs_in_order(tool), Future()))
        return calls

    def _launched(self, launch: Launcher, arguments: Mapping[str, Any]) -> PendingCall:
        pending = launch((), arguments)
        pending.counters.append(self.counter)
        return pending

    async def _run(self, calls: Sequence[_TurnCall]) -> None:
        """Runs the calls of a sample: some in order, then the others together."""
        try:
            for call in calls:
                if call.ordered:
                    await self._run_call(call)
            await asyncio.gather(*(self._run_call(call) for call in calls if not call.ordered))
        finally:
            for call in calls:
                call.future.cancel()

    async def _run_call(self, call: _TurnCall) -> None:
        try:
            call.future.set_result(await self._launched(call.launch, call.arguments).aresult())
        except Exception as error:
            call.future.set_exception(error)


def _runs_in_order(tool: Callable[..., Any]) -> bool:
    """Returns whether such calls of a turn run one after the other: sync ones, and all of an
    environment, whose state the next call sees."""
    return not inspect.iscoroutinefunction(tool) or owner_of(getattr(tool, "__self__", None)) is not None
