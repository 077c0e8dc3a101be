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
from guerdon.integrations.trl.tool_calls.turns import mark_retrieved, runs_in_order

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
        turn = _SampleTurn(tool_calls, tool_dict, self._tool_pool)
        running = asyncio.create_task(turn.run())
        try:
            return await super()._execute_tool_calls(tool_calls, turn.stand_ins())  # type: ignore[misc]
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


class _PendingReset:
    """A reset that has not run yet."""

    def result(self) -> str:
        return ""


class _SampleTurn:
    """The calls of one turn of one sample."""

    def __init__(self, tool_calls: Sequence[Mapping[str, Any]], tools: Mapping[str, Any], pool: Any) -> None:
        self._tools = tools
        self._pool = pool
        self._ordered: list[tuple[Any, Mapping[str, Any], asyncio.Future[Any]]] = []
        self._together: list[tuple[Any, Mapping[str, Any], asyncio.Future[Any]]] = []
        self._waiting: dict[str, deque[asyncio.Future[Any]]] = {name: deque() for name in tools}
        loop = asyncio.get_running_loop()
        for tool_call in tool_calls:
            function = tool_call["function"]
            tool, arguments = tools.get(function["name"]), function.get("arguments", {})
            if tool is None or not isinstance(arguments, Mapping):  # TRL answers these itself
                continue
            future: asyncio.Future[Any] = loop.create_future()
            future.add_done_callback(mark_retrieved)
            self._waiting[function["name"]].append(future)
            kind = self._ordered if runs_in_order(tool) else self._together
            kind.append((tool, arguments, future))

    def stand_ins(self) -> dict[str, Any]:
        """The tools by name, each a coroutine function that waits for its started call."""
        return {name: self._stand_in(name) for name in self._tools}

    async def run(self) -> None:
        """Some calls in order, then the others together."""
        for call in self._ordered:
            await self._one(*call)
        await asyncio.gather(*(self._one(*call) for call in self._together))

    def _stand_in(self, name: str) -> Callable[..., Any]:
        async def wait(**arguments: Any) -> Any:
            return await self._waiting[name].popleft()

        return wait

    async def _one(self, tool: Any, arguments: Mapping[str, Any], future: asyncio.Future[Any]) -> None:
        try:
            launch = launcher_of(tool)
            if launch is not None:
                value = await launch((), arguments).aresult()
            elif inspect.iscoroutinefunction(tool):
                value = await asyncio.ensure_future(tool(**arguments))
            else:
                called = functools.partial(tool, **arguments)
                value = await asyncio.get_running_loop().run_in_executor(self._pool, called)
        except Exception as error:
            if not future.done():
                future.set_exception(error)
        except asyncio.CancelledError:
            if not future.done():
                future.set_exception(RuntimeError("the call was cancelled"))
            raise
        else:
            if not future.done():
                future.set_result(value)


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
