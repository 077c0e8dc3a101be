"""Tools and environments of the asynchronous trainer's rollout loop on the engine.

A mixin to stand before TRL's loop. TRL runs a sample as a task of its own, but resets its environment before that, in the
one loop that starts all samples, and asks it for its reward there too. Here both belong to the sample's task.

- L-1  A reset is a sample's own first step: `reset` gives nothing at once, the task does it and completes the prompt.
- L-2  The calls of one sample keep the rule of the synchronous trainer: sync ones in order, then async ones together;
       results in call order.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from guerdon.integrations.trl.tool_calls.environments import Environments, environments, environments_of
from guerdon.integrations.trl.tool_calls.proxies import launcher_of
from guerdon.integrations.trl.tool_calls.tools import Tool

__all__ = ["SideBySideLoop"]


class SideBySideLoop:
    """The mixin. An ``environment_factory`` is routed by it, with the default deadlines, if it isn't yet."""

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
        self._drawn: tuple[object, Mapping[str, Any]] | None = None  # whose reset TRL has asked for last
        self._hubs = [hub for hub in (self.environment_factories or {}).values() if isinstance(hub, Environments)]
        for hub in self._hubs:
            hub.ahead = self

    def end_engines(self) -> None:
        """Ends what tools and environments run on."""
        for hub in self._hubs:
            hub.close()
        for tool in self.tools or ():
            owner = getattr(tool, "__self__", None)
            if isinstance(owner, Tool):
                owner.owner.close()

    def reset(self, environment: object, kwargs: Mapping[str, Any]) -> Any:
        """What a routed ``reset`` gives TRL: nothing yet (L-1)."""
        self._drawn = environment, kwargs
        return _Nothing()

    def _generate_one(self, prompt: Any, *args: Any, **named: Any) -> Any:
        drawn, self._drawn = self._drawn, None
        if drawn is None:
            return super()._generate_one(prompt, *args, **named)  # type: ignore[misc]
        rollout = super()._generate_one  # type: ignore[misc]
        return self._in_world(drawn, prompt, functools.partial(rollout, prompt, *args, **named))

    async def _in_world(self, drawn: tuple[Any, Mapping[str, Any]], prompt: Any, rollout: Callable[[], Any]) -> Any:
        environment, kwargs = drawn
        hub = environments_of(environment)
        assert hub is not None  # only routed environments come here
        began = time.monotonic()
        _observe(prompt, await hub.reset(environment, kwargs).aresult())
        self._rates["guerdon/env/reset_s"][0] += time.monotonic() - began
        self._rates["guerdon/env/reset_s"][1] += 1
        return await rollout()

    async def _execute_tool_calls(self, tool_calls: Any, tool_dict: Mapping[str, Any]) -> Any:
        turn = _Turn(tool_calls, tool_dict, self._tool_pool)
        running = asyncio.create_task(turn.run())
        try:
            return await super()._execute_tool_calls(tool_calls, turn.stand_ins())  # type: ignore[misc]
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


class _Nothing:
    """A reset that is not done yet."""

    def result(self) -> str:
        return ""


class _Turn:
    """The calls of one turn of one sample."""

    def __init__(self, tool_calls: Sequence[Mapping[str, Any]], tools: Mapping[str, Any], pool: Any) -> None:
        self._tools = tools
        self._pool = pool
        self._sync: list[tuple[Any, Mapping[str, Any], asyncio.Future[Any]]] = []
        self._async: list[tuple[Any, Mapping[str, Any], asyncio.Future[Any]]] = []
        self._waiting: dict[str, deque[asyncio.Future[Any]]] = {name: deque() for name in tools}
        loop = asyncio.get_running_loop()
        for tool_call in tool_calls:
            function = tool_call["function"]
            tool, arguments = tools.get(function["name"]), function.get("arguments", {})
            if tool is None or not isinstance(arguments, Mapping):  # TRL answers these itself
                continue
            future: asyncio.Future[Any] = loop.create_future()
            future.add_done_callback(_looked_at)
            self._waiting[function["name"]].append(future)
            kind = self._async if inspect.iscoroutinefunction(tool) else self._sync
            kind.append((tool, arguments, future))

    def stand_ins(self) -> dict[str, Any]:
        """The tools by name, each a coroutine function that waits for what was started."""
        return {name: self._stand_in(name) for name in self._tools}

    async def run(self) -> None:
        """Sync calls in order, then async ones together (L-2)."""
        for call in self._sync:
            await self._one(*call)
        await asyncio.gather(*(self._one(*call) for call in self._async))

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


def _looked_at(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


def _observe(prompt: list[dict[str, Any]], observation: Any) -> None:
    """Puts what a reset gave behind the last message, as TRL does; the message is TRL's copy, with nothing behind it."""
    last = prompt[-1]
    content = last["content"]
    if isinstance(content, list) and content[-1:] == [{"type": "text", "text": ""}]:
        content = content[:-1]
    if isinstance(observation, list) and isinstance(content, str):
        content = [{"type": "text", "text": content}]
    elif isinstance(observation, str) and isinstance(content, list):
        observation = [{"type": "text", "text": observation}]
    last["content"] = content if observation is None else content + observation
