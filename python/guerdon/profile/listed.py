"""An entry of a dispatcher's list that is nothing but a spec."""

from __future__ import annotations

from guerdon._functions.spec import FunctionSpec

__all__ = ["Listed"]


class Listed:
    """A decorated function that `Dispatcher` takes."""

    __guerdon_decorated__ = True

    def __init__(self, spec: FunctionSpec) -> None:
        self.spec = spec
        self.__name__ = spec.name
