"""What async reward functions do before their result, one coroutine function a behaviour.

Each takes its sample and gives a number or raises; none depends on what ran before it, so that a
task of its own and a lane must make the same of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import anyio.lowlevel
import anyio.to_thread

_variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="clean")

CASES: list[Callable[[str], Awaitable[float]]] = []


def case(function: Callable[[str], Awaitable[float]]) -> Callable[[str], Awaitable[float]]:
    CASES.append(function)
    return function


async def _later(value: float, seconds: float = 0.001) -> float:
    await asyncio.sleep(seconds)
    return value


async def _fails(error: BaseException) -> float:
    await asyncio.sleep(0)
    raise error


@case
async def never_suspends(text: str) -> float:
    return float(len(text))


@case
async def sees_a_clean_context(text: str) -> float:
    before = _variable.get()
    _variable.set(text)
    await asyncio.sleep(0.001)
    return 1.0 if (before, _variable.get()) == ("clean", text) else -1.0


@case
async def leaves_a_context_behind(text: str) -> float:
    before = _variable.get()
    _variable.set("left behind")
    return 1.0 if before == "clean" else -1.0


@case
async def passes_its_context_on(text: str) -> float:
    _variable.set(text)
    seen = await asyncio.gather(*(asyncio.create_task(_read()) for _ in range(2)))
    return 1.0 if seen == [text, text] else -1.0


async def _read() -> str:
    await asyncio.sleep(0)
    return _variable.get()


@case
async def knows_its_task(text: str) -> float:
    task = asyncio.current_task()
    await asyncio.sleep(0.001)
    return 1.0 if task is not None and task is asyncio.current_task() and task in asyncio.all_tasks() else -1.0


@case
async def starts_uncancelled(text: str) -> float:
    task = asyncio.current_task()
    assert task is not None
    return float(task.cancelling())


@case
async def cancels_itself(text: str) -> float:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0.01)
    return -1.0


@case
async def cancels_itself_and_returns(text: str) -> float:
    """The request is still pending at the end: a task of its own is cancelled then, or not.

    That depends on the version; the value counts.
    """
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    task.uncancel()
    return 4.0


@case
async def is_cancelled_when_it_is_over(text: str) -> float:
    """Nobody stops the timer that cancels it: it must not reach the next call."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(0.002, task.cancel)
    return 1.0


@case
async def changes_its_task(text: str) -> float:
    task = asyncio.current_task()
    assert task is not None
    before = task.get_name()
    task.set_name("changed")
    task.add_done_callback(lambda _: None)
    return 1.0 if before != "changed" else -1.0


@case
async def raises_cancelled(text: str) -> float:
    raise asyncio.CancelledError


@case
async def awaits_a_cancelled_task(text: str) -> float:
    child = asyncio.create_task(_later(1.0, 10))
    await asyncio.sleep(0)
    child.cancel()
    return await child


@case
async def raises(text: str) -> float:
    raise ValueError(text)


@case
async def raises_stop_iteration(text: str) -> float:
    raise StopIteration(text)


@case
async def raises_generator_exit(text: str) -> float:
    raise GeneratorExit


@case
async def raises_a_timeout_of_its_own(text: str) -> float:
    return await asyncio.wait_for(_later(1.0, 10), 0.001)


@case
async def shields_from_its_own_timeout(text: str) -> float:
    inner = asyncio.create_task(_later(6.0, 0.01))
    try:
        await asyncio.wait_for(asyncio.shield(inner), 0.001)
    except TimeoutError:
        return await inner
    return -1.0


@case
async def gathers_exceptions(text: str) -> float:
    found = await asyncio.gather(_later(1.0), _fails(KeyError(text)), return_exceptions=True)
    return 1.0 if found[0] == 1.0 and isinstance(found[1], KeyError) else -1.0


@case
async def is_called_back(text: str) -> float:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[float] = loop.create_future()
    loop.call_later(0.001, future.set_result, 7.0)
    return await future


@case
async def asks_a_thread(text: str) -> float:
    return await asyncio.get_running_loop().run_in_executor(None, float, "8")


@case
async def leaves_an_iteration(text: str) -> float:
    ended = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    iterator = numbers()
    async for _ in iterator:
        break
    await iterator.aclose()  # type: ignore[attr-defined]
    return 1.0 if ended else -1.0


@case
async def returns_nothing(text: str) -> None:  # type: ignore[misc]
    await asyncio.sleep(0)


@case
async def anyio_moves_on(text: str) -> float:
    with anyio.move_on_after(0.001) as scope:
        await anyio.sleep(10)
    return 1.0 if scope.cancelled_caught else -1.0


@case
async def anyio_cancels_a_group(text: str) -> float:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 10)
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    return 1.0


@case
async def anyio_asks_a_thread(text: str) -> float:
    return await anyio.to_thread.run_sync(float, "10")


@case
async def times_out(text: str) -> float:
    async with asyncio.timeout(0.001):
        await asyncio.sleep(10)
    return -1.0


@case
async def catches_its_timeout(text: str) -> float:
    try:
        async with asyncio.timeout(0.001):
            await asyncio.sleep(10)
    except TimeoutError:
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0)
        return float(task.cancelling())
    return -1.0


@case
async def moves_its_timeout(text: str) -> float:
    async with asyncio.timeout(10) as timeout:
        timeout.reschedule(asyncio.get_running_loop().time() + 0.001)
        with contextlib.suppress(RuntimeError):
            await asyncio.sleep(10)
    return -1.0


@case
async def catches_a_group(text: str) -> float:
    task = asyncio.current_task()
    assert task is not None
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_fails(ValueError(text)))
            await asyncio.sleep(10)
    except BaseException as error:
        await asyncio.sleep(0)
        return float(task.cancelling()) if type(error).__name__ == "ExceptionGroup" else -1.0
    return -1.0
