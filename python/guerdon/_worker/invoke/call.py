"""One reward function as its lane calls it, the same on every lane.

- A plain function with positional arguments is called directly: `Call.bind` returns the function.
- Records belong to the call that made them: a recorder that is kept and used later adds to no
  other.
- A `Call` serves one call at a time; a lane that runs several at once takes a `clone` for each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from .async_detection import is_async, is_awaitable
from .records import encode_records, tokens_of
from .returned_values import to_single

Names = tuple[str, ...]


class Call:
    """A target (function, callable object, `guerdon.StatefulReward` instance) and how to call it.

    Args:
        target: What to call.
        recipe: ``name``, ``shape``, ``rowwise``, ``records`` and ``stateful``, as registered.
    """

    __slots__ = ("_bound", "_items", "_score", "_target", "_tokens", "is_async", "name", "recipe", "wants_records")

    def __init__(self, target: Any, recipe: dict[str, Any]) -> None:
        self.name: str = recipe["name"]
        self._target = target
        self.recipe = recipe
        self._score: Callable[..., Any] = target.score if recipe["stateful"] else target
        self.is_async = is_async(self._score)
        self.wants_records = bool(recipe["records"])
        # Written by the recorders of the current call and by `add_fields`; `records` empties it.
        self._items: list[list[Any]] | None = None
        self._tokens: float | None = None
        self._bound: dict[tuple[bool, Names | None], Callable[..., Any]] = {}

    def clone(self) -> Call:
        """The same function for another runner, with its own records."""
        return Call(self._target, self.recipe)

    def bind(self, names: Names | None) -> Callable[..., Any]:
        """The callable for values in the order of `names`, by position when None.

        It may return an awaitable.
        """
        key = (False, names)
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bound[key] = self._make(names)
        return bound

    def bind_finish(self, names: Names) -> Callable[..., Any]:
        """The callable of `finish_group`: scores first, then the lists in the order of `names`."""
        key = (True, names)
        bound = self._bound.get(key)
        if bound is None:
            finish = self._target.finish_group

            def bound(scores: list[float | None], *values: object) -> Any:
                return finish(scores, **dict(zip(names, values, strict=True)))

            self._bound[key] = bound
        return bound

    def setup(self) -> Any:
        """Runs the target's `setup`; may return an awaitable."""
        return self._target.setup() if self.recipe["stateful"] else None

    def close(self) -> Any:
        """Runs the target's `close`; may return an awaitable."""
        return self._target.close() if self.recipe["stateful"] else None

    def add_fields(self, fields: dict[str, Any]) -> None:
        """Records the extra fields of a dict result; its ``usage`` is recorded as tokens too."""
        tokens = tokens_of(fields.get("usage"))
        if tokens is not None:
            self._tokens = tokens
            fields = {**fields, "usage": tokens}
        if self._items is None:
            self._items = []
        self._items.append(["fields", fields])

    def records(self) -> bytes | None:
        """Returns the records since the last call of this method, as JSON; None if nothing.

        A list of ``["extra", column, values]``, ``["metric", name, value]`` and
        ``["fields", {name: value}]``.
        """
        items = self._items
        if not items:
            return None
        self._items = None
        return encode_records(items)

    def tokens(self) -> float | None:
        """The tokens reported since the last call of this method."""
        tokens, self._tokens = self._tokens, None
        return tokens

    def drop_records(self) -> None:
        """Drops what a failed call recorded."""
        self._items = self._tokens = None

    def _make(self, names: Names | None) -> Callable[..., Any]:
        score, rowwise = self._score, self.recipe["rowwise"]
        wanted: tuple[str, ...] = tuple(self.recipe["records"])
        if not rowwise and not wanted:
            if names is None:
                return score
            return lambda *values: score(**dict(zip(names, values, strict=True)))

        def call(*values: object) -> Any:
            if rowwise:  # rows become lists of one; trainer_state is one object, not a row
                values = tuple(v if n == "trainer_state" else [v] for n, v in zip(names or (), values, strict=True))
            keywords: dict[str, Any] = {} if names is None else dict(zip(names, values, strict=True))
            if wanted:
                keywords.update(self._recorders(wanted))
            raw = score(*values, **keywords) if names is None else score(**keywords)
            if not rowwise:
                return raw
            return _single_of(raw) if is_awaitable(raw) else to_single(raw)

        return call

    def _recorders(self, wanted: tuple[str, ...]) -> dict[str, Callable[..., None]]:
        items: list[list[Any]] = []  # a new list for each call: an old recorder adds to the old one
        self._items = items

        def log_extra(column: str, values: list[Any]) -> None:
            items.append(["extra", column, values])

        def log_metric(name: str, value: float) -> None:
            items.append(["metric", name, value])

        recorders: dict[str, Callable[..., None]] = {"log_extra": log_extra, "log_metric": log_metric}
        return {name: recorders[name] for name in wanted}


async def _single_of(awaitable: Awaitable[Any]) -> object:
    return to_single(await awaitable)
