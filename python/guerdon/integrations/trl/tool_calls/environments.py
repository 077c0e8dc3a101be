"""Environments whose methods run on the engine, each call with its timeout.

An instance stays what its factory made; only its class becomes a subclass of the same name in which
``reset``, ``get_reward`` and the public methods (a trainer's tools) are proxies. A method that
calls another one of its environment calls it directly; so do a thread that it started, and a
finalizer, and so does a copy. While a call that was given up still has an environment, every
further call of it fails at once.

A class has one subclass, whichever factory makes instances: to a trainer it stays one class.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypedDict, Unpack, overload

from guerdon._engine.dispatcher_options import bound
from guerdon._functions.callables import is_async, name_of
from guerdon._lanes.lane_threads import LaneThread
from guerdon.errors import RegistrationError
from guerdon.integrations._event_loop_thread import EventLoopThread
from guerdon.integrations.trl.tool_calls.environment_calls import EnvironmentCall, EnvironmentThread
from guerdon.integrations.trl.tool_calls.executor import CallCount, CallCounter, Executor, PendingCall
from guerdon.integrations.trl.tool_calls.proxies import make_proxy
from guerdon.limits import Limit

Factory = Callable[[], object]

_USER_CLASS = "__guerdon_plain__"
RESET: Final = "reset"
REWARD: Final = "get_reward"


class _EnvironmentOptions(TypedDict, total=False):
    timeout: float
    reset_timeout: float
    reward_timeout: float
    limit: Limit | None
    retries: int
    ordered: bool


@overload
def environments(factory: Mapping[str, Factory], **options: Unpack[_EnvironmentOptions]) -> dict[str, Environments]: ...
@overload
def environments(factory: Factory, **options: Unpack[_EnvironmentOptions]) -> Environments: ...
def environments(
    factory: Factory | Mapping[str, Factory],
    *,
    timeout: float = 180.0,
    reset_timeout: float = 600.0,
    reward_timeout: float = 600.0,
    limit: Limit | None = None,
    retries: int = 0,
    ordered: bool = False,
) -> Environments | dict[str, Environments]:
    """A trainer's ``environment_factory=`` whose environments' methods run on the engine.

    Args:
        factory: Makes an environment: its class, or anything that can be called without arguments;
            or a dict of them by name.
        timeout: Seconds that one call of a method may run.
        reset_timeout: The same for ``reset``.
        reward_timeout: The same for ``get_reward``.
        limit: Of the calls of ``reset``: how many at once, and how many a minute. Each factory of a
            dict has its own; those of one ``key`` share it.
        retries: Further attempts for a ``reset`` that fails. One that was throttled (`RetryAfter`,
            status 429) is tried again without.
        ordered: Environments are reset one after the other, in the order of the samples, as TRL
            does; by default all at once.

    Returns:
        What to give as ``environment_factory``; for a dict, a dict.

    Raises:
        RegistrationError: A factory can't be called, or an option is wrong.

    Examples:
        >>> from guerdon.integrations.trl import environments
        >>> class Counter:
        ...     def reset(self, **row: object) -> None:
        ...         self.count = 0
        ...
        ...     def add(self, by: int) -> int:
        ...         '''Adds.
        ...
        ...         Args:
        ...             by: How much.
        ...         '''
        ...         self.count += by
        ...         return self.count
        >>> counter = environments(Counter, timeout=5)()
        >>> counter.reset()
        >>> counter.add(by=2), isinstance(counter, Counter)
        (2, True)
    """
    if not isinstance(ordered, bool):
        raise RegistrationError(f"ordered={ordered!r}: expected True or False.")
    options = _EnvironmentOptions(
        timeout=bound("timeout", timeout),
        reset_timeout=bound("reset_timeout", reset_timeout),
        reward_timeout=bound("reward_timeout", reward_timeout),
        limit=limit,
        retries=retries,
        ordered=ordered,
    )
    if isinstance(factory, Mapping):
        return {name: environments(one, **options) for name, one in factory.items()}
    return factory if isinstance(factory, Environments) else Environments(factory, options)


def owner_of(environment: object) -> Environments | None:
    """The `Environments` that made an environment; None if none did."""
    made = _made.get(id(environment))
    return None if made is None else made.owner


def is_busy(environment: object) -> bool:
    """Returns whether a call of this environment runs now."""
    made = _made.get(id(environment))
    return made is not None and bool(made.thread.running)


def user_class_of(kind: type) -> type:
    """The class that the user wrote, of a class of environments."""
    plain: type = kind.__dict__.get(_USER_CLASS, kind)
    return plain


@dataclass(frozen=True)
class _MadeEnvironment:
    """An environment that a factory made.

    Attributes:
        reference: Weak, with a callback that ends the thread; the environment itself where there
            can be no such reference (a class with ``__slots__``).
    """

    reference: object
    owner: Environments
    thread: EnvironmentThread


# Keys are identities, since an environment may have no hash. Factories add and drop entries.
_made: dict[int, _MadeEnvironment] = {}
_classes_lock = threading.Lock()


class Environments:
    """Return value of `environments`: a factory of environments that share their threads and loop.

    Attributes:
        ordered: Whether a trainer resets one after the other.
        reset_source: Answers calls of ``reset``, given this factory, the environment and the
            arguments, possibly with one started before; set by a trainer.
        counter: The counts of all calls.
    """

    def __init__(self, factory: Factory, options: _EnvironmentOptions) -> None:
        if not callable(factory):
            raise RegistrationError(
                f"{factory!r} can't make environments: give a class, or a function without arguments."
            )
        self.ordered = options["ordered"]
        self._factory = factory
        self._options = options
        self.__name__ = name_of(factory)
        self.reset_source: Callable[[Environments, object, Mapping[str, Any]], Any] | None = None
        self.counter = CallCounter()
        self._loop = EventLoopThread("guerdon environments", patience=0.0)
        made = functools.partial(Executor, lane="asyncio", counter=self.counter)
        self._resets = made(RESET, timeout=options["reset_timeout"], limit=options["limit"], retries=options["retries"])
        self._rewards = made(REWARD, timeout=options["reward_timeout"])
        self._methods = made("environment", timeout=options["timeout"])

    def __call__(self) -> object:
        environment = self._factory()
        if owner_of(environment) is not None:
            return environment
        kind = type(environment)
        try:
            object.__setattr__(environment, "__class__", _class_with_proxies(kind))
        except TypeError as error:
            raise RegistrationError(
                f"the methods of the environment {kind.__qualname__} can't run on the engine ({error}). Have the factory "
                "return an object of a class of your own, which a subclass can derive from."
            ) from error
        self._remember(environment)
        return environment

    def _remember(self, environment: object) -> None:
        key = id(environment)
        thread = EnvironmentThread(f"guerdon environment {type(environment).__name__}", self._loop)

        def gone(_: object) -> None:  # maybe in the middle of anything: it takes no lock
            _made.pop(key, None)
            thread.end()

        try:
            reference: object = weakref.ref(environment, gone)
        except TypeError:
            reference = environment
        _made[key] = _MadeEnvironment(reference, self, thread)

    def stats(self) -> dict[str, CallCount]:
        """By method: calls, how many failed, how many timed out, and the seconds they ran."""
        return self.counter.counts()

    def timeout_of(self, method: str) -> float:
        """Seconds that a call of this method may run."""
        return self._executor_of(method).timeout

    def close(self) -> None:
        """Ends the threads and the loop; calls in flight are cancelled."""
        for executor in (self._resets, self._rewards, self._methods):
            executor.close()
        for key, made in list(_made.items()):
            if made.owner is self:
                made.thread.close()
                if not isinstance(made.reference, weakref.ref):
                    del _made[key]
        self._loop.close()

    def start(self, environment: object, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> PendingCall:
        """Starts a call of a method. It fails where the environment is stuck in another."""
        return self._executor_of(method).launch_call(method, self._call(environment, method, args, kwargs))

    def reset(self, environment: object, kwargs: Mapping[str, Any]) -> PendingCall:
        """Starts a reset, past any `reset_source`."""
        return self.start(environment, RESET, (), kwargs)

    async def reward(self, environment: object) -> Any:
        """Returns the value of ``get_reward``, for a caller with its own timeout."""
        call = self._call(environment, REWARD, (), {})
        await call.awaited()
        value, error = call.take_result()
        if error is not None:
            raise error
        return value

    def _executor_of(self, method: str) -> Executor:
        return {RESET: self._resets, REWARD: self._rewards}.get(method, self._methods)

    def _call(
        self, environment: object, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> EnvironmentCall:
        kind = user_class_of(type(environment))
        return EnvironmentCall(
            types.MethodType(getattr(kind, method), environment),
            args,
            kwargs,
            keep=method == RESET,
            thread=_made[id(environment)].thread,
            name=f"{kind.__qualname__}.{method}",
            timeout=self.timeout_of(method),
        )

    def __reduce__(self) -> tuple[Callable[..., Environments], tuple[Factory, _EnvironmentOptions]]:
        return Environments, (self._factory, self._options)


def _class_with_proxies(kind: type) -> type:
    """The subclass of a class of environments; made once, and known by the class itself."""
    with _classes_lock:
        derived: list[type] = type.__subclasses__(kind)
        for one in derived:
            if user_class_of(one) is kind:
                return one
        body: dict[str, Any] = {
            "__slots__": (),
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__doc__": kind.__doc__,
            _USER_CLASS: kind,
        }
        for name, function in inspect.getmembers(kind, predicate=inspect.isfunction):
            static = isinstance(inspect.getattr_static(kind, name), staticmethod)
            if not static and (name == RESET or not name.startswith("_")):
                body[name] = _proxy(name, function)
        return types.new_class(kind.__name__, (kind,), {}, lambda namespace: namespace.update(body))


def _proxy(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def launch(environment: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        owner = _made[id(environment)].owner
        if name == RESET and owner.reset_source is not None and not args:
            return owner.reset_source(owner, environment, kwargs)
        return owner.start(environment, name, args, kwargs)

    def waited_for(environment: object) -> bool:
        made = _made.get(id(environment))
        if made is None:  # a copy
            return True
        if name == RESET and made.owner.reset_source is not None:
            return False  # a trainer asks, on whatever thread, for a reset that may run already
        return not asynchronous and _runs_for(made.thread)

    asynchronous = name != RESET and is_async(function)
    return make_proxy(function, name, launch, function, asynchronous=asynchronous, method=True, waited_for=waited_for)


def _runs_for(thread: EnvironmentThread) -> bool:
    """Returns whether a thread that an environment started calls it while a method runs. That
    method may wait for the call, and has the environment's thread."""
    current = threading.current_thread()
    if current is threading.main_thread() or isinstance(current, (LaneThread, threading._DummyThread)):
        return False
    return any(not call.given_up for call in thread.running)
