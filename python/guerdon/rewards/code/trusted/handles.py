"""Objects that tests and a program share.

- An object of the program's own class is a `Handle` here: what tests ask of it is asked there. It
  equals itself alone.
- An object of a class that the tests or the prelude define (a ListNode) is made anew on the other
  side, with its attributes; classes of a program are never made here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from guerdon.rewards.code.child.encoding import Opaque

__all__ = ["Exchange", "Handle", "holds_objects"]

Ask = Callable[[str, list[Any]], Any]
"""Has the program's process do something with an object."""
_CONTAINERS: Final = (list, tuple, set, frozenset, deque)


def _asked(act: str) -> Any:
    """A method that runs in the program's process."""
    return lambda handle, *args: handle.guerdon_ask(act, [handle, *args])


class Handle(Opaque):
    """An object of the program."""

    __slots__ = ("guerdon_ask",)
    guerdon_ask: Ask

    def __init__(self, kind: str, number: int, ask: Ask) -> None:
        for name, value in (("guerdon_kind", kind), ("guerdon_number", number), ("guerdon_ask", ask)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__name__":
            raise AttributeError(name)
        return self.guerdon_ask("getattr", [self, name])

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self.guerdon_ask("call", [self, list(args), kwargs])

    __setattr__ = _asked("setattr")
    __iter__ = _asked("iter")
    __next__ = _asked("next")
    __len__ = _asked("len")
    __getitem__ = _asked("getitem")
    __contains__ = _asked("contains")

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.guerdon_number == self.guerdon_number

    def __hash__(self) -> int:
        return hash(self.guerdon_number)


def holds_objects(value: object) -> bool:
    """Says whether a value holds an object of the program."""
    if isinstance(value, dict):
        return any(map(holds_objects, [*value, *value.values()]))
    if isinstance(value, _CONTAINERS):
        return any(map(holds_objects, value))
    return isinstance(value, Opaque)


class Exchange:
    """The values that go over in one call, and come back."""

    def __init__(self, ask: Ask, classes: Mapping[str, type]) -> None:
        self._ask = ask
        self._classes = classes
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
        handle = value if isinstance(value, Handle) else Handle(value.guerdon_kind, value.guerdon_number, self._ask)
        known = self._classes.get(handle.guerdon_kind)
        if known is None:
            return handle
        if handle.guerdon_number not in self._here:
            made: Any = object.__new__(known)
            self._here[handle.guerdon_number] = made
            waiting.append((made, handle))
        return self._here[handle.guerdon_number]

    def _fill(self, one: Any, handle: Handle, waiting: list[tuple[Any, Handle]]) -> None:
        for name, attribute in self._ask("vars", [handle]).items():
            if isinstance(name, str) and not name.startswith("__"):
                object.__setattr__(one, name, self._received(attribute, waiting))

    def update(self) -> None:
        """Have objects and data of the call's arguments be as they are there."""
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
