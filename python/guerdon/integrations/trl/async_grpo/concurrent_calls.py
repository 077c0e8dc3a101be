"""A mixin before TRL's rollout loop: tools and environments of all samples run concurrently.

TRL runs a sample as a task, but resets its environment before that, in the one loop that starts all
samples. Here a reset is the first step of the sample's own task, unless an order was asked for. The
calls of one sample keep the synchronous trainer's rule: sync ones and those of an environment in
order, then async ones together, results in call order.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from guerdon.integrations.trl.tool_calls.environments import Environments, environments, owner_of
from guerdon.integrations.trl.tool_calls.proxies import launcher_of
from guerdon.integrations.trl.tool_calls.tools import Tool
from guerdon.integrations.trl.tool_calls.turns import runs_in_order

__all__ = ["ConcurrentRollouts"]


class ConcurrentRollouts:
    """The mixin. A plain ``environment_factory`` gets `environments` with default timeouts."""

    # TRL's own.
    environment_factories: Any
    tools: Any
    _rates: Any
    _tool_pool: Any

    def __init__(self, **named: Any) -> None:
        factory = named.get("environment_factory")
        if factory is not None:
            named["environment_factory"] = environments(factory)
        super().__init__(**named)
        # The last reset that TRL asked for
        self._drawn: tuple[object, Mapping[str, Any]] | None = None
        self._owners = [
            owner for owner in (self.environment_factories or {}).values() if isinstance(owner, Environments)
        ]
        for each in self._owners:
            each.reset_source = None if each.ordered else self

    def close_tools_and_environments(self) -> None:
        """Ends what tools and environments run on."""
        for each in self._owners:
            each.close()
        for tool in self.tools or ():
            proxied = getattr(tool, "__self__", None)
            if isinstance(proxied, Tool):
                proxied.owner.close()

    def reset(self, environment: object, kwargs: Mapping[str, Any]) -> Any:
        """A placeholder, given to TRL: the reset runs in the sample's task."""
        self._drawn = environment, kwargs
        return _PendingReset()

    def _generate_one(self, prompt: Any, *args: Any, **named: Any) -> Any:
        drawn, self._drawn = self._drawn, None
        if drawn is None:
            return super()._generate_one(prompt, *args, **named)  # type: ignore[misc]
        rollout = super()._generate_one  # type: ignore[misc]
        return self._with_environment(drawn, prompt, functools.partial(rollout, prompt, *args, **named))

    async def _with_environment(
        self, drawn: tuple[Any, Mapping[str, Any]], prompt: Any, rollout: Callable[[], Any]
    ) -> Any:
        environment, kwargs = drawn
        owner = owner_of(environment)
        assert owner is not None  # others have no `reset_source`
        began = time.monotonic()
        _append_observation(prompt, await owner.reset(environment, kwargs).aresult())
        self._rates["guerdon/env/reset_s"][0] += time.monotonic() - began
        self._rates["guerdon/env/reset_s"][1] += 1
        return await rollout()

    async def _execute_tool_calls(self, tool_calls: Any, tool_dict: Mapping[str, Any]) -> Any:
        started = self._start_calls([each["function"] for each in tool_calls], tool_dict)
        tasks = [task for of_name in started.values() for task in of_name]

        async def wait(name: str, /, **arguments: Any) -> Any:
            # A cancelled rollout ends here; passed on, it would be an error of the call.
            return await asyncio.shield(started[name].popleft())

        try:
            stand_ins = {name: functools.partial(wait, name) for name in tool_dict}
            return await super()._execute_tool_calls(tool_calls, stand_ins)  # type: ignore[misc]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _start_calls(self, calls: Sequence[Mapping[str, Any]], tools: Mapping[str, Any]) -> dict[str, deque[Any]]:
        """Starts the calls of one turn of one sample: some in order, then the others together. TRL
        answers unknown names and bad arguments itself."""
        started: dict[str, deque[Any]] = {name: deque() for name in tools}
        known = [one for one in calls if one["name"] in tools and isinstance(one.get("arguments", {}), Mapping)]
        before: asyncio.Task[Any] | None = None
        for call in sorted(known, key=lambda one: not runs_in_order(tools[one["name"]])):
            tool = tools[call["name"]]
            task = asyncio.create_task(self._run_call(before, tool, call.get("arguments", {})))
            started[call["name"]].append(task)
            before = task if runs_in_order(tool) else before
        return started

    async def _run_call(self, before: asyncio.Task[Any] | None, tool: Any, arguments: Mapping[str, Any]) -> Any:
        if before is not None:
            await asyncio.wait([before])
        launch = launcher_of(tool)
        try:
            if launch is not None:
                return await launch((), arguments).aresult()
            if inspect.iscoroutinefunction(tool):
                return await tool(**arguments)
            called = functools.partial(tool, **arguments)
            return await asyncio.get_running_loop().run_in_executor(self._tool_pool, called)
        except asyncio.CancelledError:  # perhaps the tool's own, which must not end the rollout
            raise RuntimeError("the call was cancelled") from None


class _PendingReset:
    """A reset that has not run yet."""

    def result(self) -> str:
        return ""


def _append_observation(prompt: list[dict[str, Any]], observation: Any) -> None:
    """Appends what a reset gave to the last message, as TRL does; the message is TRL's copy."""
    last = prompt[-1]
    content = last["content"]
    if isinstance(content, list) and content[-1:] == [{"type": "text", "text": ""}]:
        content = content[:-1]
    if isinstance(observation, list) and isinstance(content, str):
        content = [{"type": "text", "text": content}]
    elif isinstance(observation, str) and isinstance(content, list):
        observation = [{"type": "text", "text": observation}]
    last["content"] = content if observation is None else content + observation
