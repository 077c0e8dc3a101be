"""Objects that tests and a program share.

- An object of the program's own class is a `Handle` here: its methods and operators run there, and
  return data, or another handle.
- Comparisons are decided here. An object equals itself alone: the program could have it equal any
  value. Tests that compare by value the objects of a class that they called get no score.
- An object of a class that the tests or the prelude define (a ListNode) is created again on the
  other side, with its attributes; classes of a program are never created here.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final, NoReturn, Protocol

from guerdon.rewards.code.child.encoding import EncodingError, Opaque

__all__ = [
    "ACTS_ON_OPERANDS",
    "DERIVED",
    "MADE",
    "RETURNED",
    "Exchange",
    "Handle",
    "hash_of",
    "holds_objects",
    "is_same",
    "part_of",
    "silencing",
]

RETURNED, DERIVED, MADE = range(3)
"""Origins of an object: a function or method returned it; it is the value of an operator on one
that tests made; tests called its class."""

_OPERATORS: Final = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("lshift", "rshift", "and", "or", "xor"),
)
# The other operand may be the expected value: a program could have the difference be zero.
_DIFFERENCES: Final = ("sub", "truediv", "floordiv", "mod", "xor", "isub", "itruediv", "ifloordiv", "imod", "ixor")
_UNARY: Final = ("abs", "neg", "pos", "invert", "round", "enter", "copy")
ACTS_ON_OPERANDS: Final = frozenset((*_OPERATORS, *(f"i{name}" for name in _OPERATORS), *_UNARY, "deepcopy"))
"""Acts whose value has the origin of their operands."""
_PLAIN: Final = (
    *("iter", "next", "len", "reversed", "bool", "str", "repr", "format", "int", "float", "setitem"),
    *("delitem", "setattr", *_UNARY),
)
_CONTAINERS: Final = (list, tuple, set, frozenset, deque)


class ObjectHost(Protocol):
    """Runs operations on an object in the program's process.

    Attributes:
        asked: Number of its requests to the program.
    """

    asked: int

    def ask(self, act: str, args: list[Any]) -> Any:
        """Returns the value of an act."""

    def refuse(self) -> NoReturn:
        """Ends the tests without a score: they let the program compare its own objects."""


def _asked(act: str) -> Any:
    """A method that runs in the program's process."""
    return lambda handle, *args: handle.guerdon_program.ask(act, [handle, *args])


def _operator(act: str, *, reflected: bool = False) -> Any:
    """An operator: on objects of the program alone, or on data and one that the tests made."""

    def asked(handle: Handle, other: object) -> Any:
        if not isinstance(other, Handle) and (handle.guerdon_origin == RETURNED or act in _DIFFERENCES):
            if handle.guerdon_origin == MADE:
                handle.guerdon_program.refuse()
            return NotImplemented
        return handle.guerdon_program.ask(act, [other, handle] if reflected else [handle, other])

    return asked


def _order(handle: Handle, other: object) -> Any:
    """Refuses an order of the program's objects."""
    if handle.guerdon_is_compared(other):
        handle.guerdon_program.refuse()
    return NotImplemented


class Handle(Opaque):
    """An object of the program.

    Attributes:
        guerdon_program: Runs its operations.
        guerdon_origin: `RETURNED`, `DERIVED` or `MADE`.
    """

    __slots__ = ("guerdon_origin", "guerdon_program")
    guerdon_program: ObjectHost
    guerdon_origin: int
    __iter__: Callable[[Handle], Iterator[Any]]

    def __init__(self, kind: str, number: int, program: ObjectHost, origin: int = RETURNED) -> None:
        for name, value in (("kind", kind), ("number", number), ("program", program), ("origin", origin)):
            object.__setattr__(self, f"guerdon_{name}", value)

    def guerdon_is_compared(self, other: object) -> bool:
        """Returns whether the tests compare values that only the program can compare."""
        if isinstance(other, Handle):
            return (
                MADE in (self.guerdon_origin, other.guerdon_origin)
                or self.guerdon_origin == other.guerdon_origin == DERIVED
            )
        return self.guerdon_origin == MADE and other is not None

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "guerdon_")) and name != "__name__":
            raise AttributeError(name)
        return self.guerdon_program.ask("getattr", [self, name])

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self.guerdon_program.ask("call", [self, list(args), kwargs])

    def __getitem__(self, key: object) -> Any:
        if isinstance(key, slice):
            return self.guerdon_program.ask("slice", [self, key.start, key.stop, key.step])
        return self.guerdon_program.ask("getitem", [self, key])

    def __contains__(self, item: object) -> Any:
        if self.guerdon_origin == RETURNED:  # it replaces data: it could claim to hold any value
            return any(one is item or one == item for one in self)
        return self.guerdon_program.ask("contains", [self, item])

    def __eq__(self, other: object) -> bool:
        if self is not other and self.guerdon_is_compared(other):
            self.guerdon_program.refuse()
        return is_same(self, other)

    def __hash__(self) -> int:
        if self.guerdon_origin == MADE:  # a set would compare it by its number
            self.guerdon_program.refuse()
        return hash(self.guerdon_number)

    def __deepcopy__(self, memo: object) -> Any:
        return self.guerdon_program.ask("deepcopy", [self])

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.guerdon_exit(kind, error)

    def guerdon_exit(self, kind: type[BaseException] | None, error: BaseException | None) -> bool:
        """Ends a ``with``; says whether the program silences the exception."""
        if error is not None and not isinstance(error, Exception):
            return False
        # Its text may hold the expected value.
        name = kind and (kind.__name__ if kind.__module__ == "builtins" else "Exception")
        return self.guerdon_program.ask("exit", [self, name]) is True


for _name in _PLAIN:
    setattr(Handle, f"__{_name}__", _asked(_name))
for _name in _OPERATORS:
    setattr(Handle, f"__{_name}__", _operator(_name))
    setattr(Handle, f"__i{_name}__", _operator(f"i{_name}"))
    setattr(Handle, f"__r{_name}__", _operator(_name, reflected=True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Handle, f"__{_name}__", _order)


class Coroutine(Handle):
    """A coroutine of the program, which runs to its end there when it is awaited here."""

    __slots__ = ()

    def send(self, _: object) -> NoReturn:
        raise StopIteration(self.guerdon_program.ask("await", [self]))

    def throw(self, *error: Any) -> NoReturn:
        raise error[0]

    def close(self) -> None:
        """Nothing: it runs in the program's process alone."""

    def __await__(self) -> Generator[None, None, Any]:
        return self.guerdon_program.ask("await", [self])
        yield

    def __next__(self) -> NoReturn:  # asyncio takes it for `send(None)`
        self.send(None)


class Silencing:
    """An object of the program as the context of test code that uses nothing of the program: it may
    silence exceptions there, but no assertion."""

    def __init__(self, one: Handle) -> None:
        self._one = one
        self._asked = 0

    def __enter__(self) -> Any:
        entered = self._one.__enter__()
        self._asked = self._one.guerdon_program.asked
        return entered

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        alone = self._one.guerdon_program.asked == self._asked
        return self._one.guerdon_exit(kind, error) and alone and not isinstance(error, AssertionError)


def silencing(one: Any) -> Any:
    """The context of a ``with`` of tests."""
    return Silencing(one) if isinstance(one, Handle) else one


class ObjectPart(Handle):
    """An attribute or item of an object of the program. Tests change it there; or a copy here,
    where an argument can't be sent, such as a function.

    Attributes:
        guerdon_copy: Returns the copy.
    """

    __slots__ = ("guerdon_copy",)
    guerdon_copy: Callable[[], Any]

    def __init__(self, part: Handle, copy: Callable[[], Any]) -> None:
        super().__init__("", part.guerdon_number, part.guerdon_program)
        object.__setattr__(self, "guerdon_copy", copy)

    def __getattr__(self, name: str) -> Any:
        def call(*args: object, **kwargs: object) -> Any:
            return self.guerdon_change(
                lambda copy: getattr(copy, name)(*args, **kwargs), "method", name, list(args), kwargs
            )

        return call

    def __setitem__(self, key: object, value: object) -> None:
        self.guerdon_change(lambda copy: operator.setitem(copy, key, value), "setitem", key, value)

    def __delitem__(self, key: object) -> None:
        self.guerdon_change(lambda copy: operator.delitem(copy, key), "delitem", key)

    def guerdon_change(self, here: Callable[[Any], Any], act: str, *args: object) -> Any:
        """Runs an act in the program's process, or here on the copy."""
        try:
            return self.guerdon_program.ask(act, [self, *args])
        except Exception as error:
            if not isinstance(error.__cause__, EncodingError):
                raise
            return here(self.guerdon_copy())


def part_of(one: Any, key: Any, is_item: bool) -> Any:
    """An attribute or item that test code changes."""
    if isinstance(one, Handle):
        part = one.guerdon_program.ask("part", [one, key, is_item])
        return ObjectPart(part, lambda: one.guerdon_program.ask("getitem" if is_item else "getattr", [one, key]))
    return one[key] if is_item else getattr(one, key)


def is_same(one: object, other: object) -> bool:
    """Returns whether these are one object, also of the program."""
    return one is other or (
        isinstance(one, Handle) and isinstance(other, Handle) and one.guerdon_number == other.guerdon_number
    )


def hash_of(value: object) -> Any:
    """Returns the hash of a value; for an object of the program its hash there."""
    return value.guerdon_program.ask("hash", [value]) if isinstance(value, Handle) else hash(value)


def holds_objects(value: object) -> bool:
    """Returns whether a value holds an object of the program."""
    if isinstance(value, dict):
        return any(map(holds_objects, [*value, *value.values()]))
    if isinstance(value, _CONTAINERS):
        return any(map(holds_objects, value))
    return isinstance(value, Opaque)


class Exchange:
    """The values that go over in one call, and come back."""

    def __init__(self, program: ObjectHost, classes: Mapping[str, type], origin: int = RETURNED) -> None:
        self._program = program
        self._ask = program.ask
        self._classes = classes
        self._origin = origin  # of what is received
        self._there: dict[int, Handle] = {}  # by id of the object here
        self._here: dict[int, Any] = {}  # by number
        self._sent_ones: list[Any] = []  # kept alive with their ids
        self._lists: list[tuple[Any, Handle]] = []

    def sent(self, value: Any, *, in_place: bool = False) -> Any:
        """A value with handles for objects of known classes, and for data that the call changes."""
        waiting: list[Any] = []
        made = self._sent(value, waiting)
        while waiting:
            one = waiting.pop()
            for name, attribute in vars(one).items():
                self._ask("setattr", [self._there[id(one)], name, self._sent(attribute, waiting)])
        if in_place and isinstance(value, (list, dict, set)):
            made = self._ask("keep", [made])
            self._lists.append((value, made))
        return made

    def _sent(self, value: Any, waiting: list[Any]) -> Any:
        kind = type(value)
        if kind in (list, tuple, set, frozenset):
            return kind(self._sent(one, waiting) for one in value)
        if kind is dict:
            return {key: self._sent(one, waiting) for key, one in value.items()}
        if self._classes.get(kind.__name__) is not kind or not hasattr(value, "__dict__"):
            return value
        if id(value) not in self._there:
            self._there[id(value)] = self._ask("new", [kind.__name__])
            waiting.append(value)
            self._sent_ones.append(value)
        return self._there[id(value)]

    def received(self, value: Any) -> Any:
        """A value with objects of known classes for their handles."""
        if not holds_objects(value):
            return value
        waiting: list[tuple[Any, Handle]] = []
        made = self._received(value, waiting)
        while waiting:
            one, handle = waiting.pop()
            self._fill(one, handle, waiting)
        return made

    def _received(self, value: Any, waiting: list[tuple[Any, Handle]]) -> Any:
        kind = type(value)
        if kind in (list, tuple):
            return kind(self._received(one, waiting) for one in value)
        if kind is dict:
            return {key: self._received(one, waiting) for key, one in value.items()}
        if not isinstance(value, Opaque):
            return value
        handle = value if isinstance(value, Handle) else self._handle(value)
        known = self._classes.get(handle.guerdon_kind)
        if known is None:
            return handle
        if handle.guerdon_number not in self._here:
            made: Any = object.__new__(known)
            self._here[handle.guerdon_number] = made
            waiting.append((made, handle))
        return self._here[handle.guerdon_number]

    def _handle(self, value: Opaque) -> Handle:
        kind = Coroutine if value.guerdon_kind == "coroutine" else Handle
        return kind(value.guerdon_kind, value.guerdon_number, self._program, self._origin)

    def _fill(self, one: Any, handle: Handle, waiting: list[tuple[Any, Handle]]) -> None:
        for name, attribute in self._ask("vars", [handle]).items():
            if isinstance(name, str) and not name.startswith("__"):
                object.__setattr__(one, name, self._received(attribute, waiting))

    def update(self) -> None:
        """Copies the call's changes of its arguments back to the objects and data here."""
        waiting = [(one, self._there[id(one)]) for one in self._sent_ones]
        self._here = {handle.guerdon_number: one for one, handle in waiting}
        while waiting:
            one, handle = waiting.pop()
            self._fill(one, handle, waiting)
        for value, handle in self._lists:
            after = self.received(self._ask("value", [handle]))
            if type(after) is type(value):
                value.clear()
                value.extend(after) if isinstance(value, list) else value.update(after)
