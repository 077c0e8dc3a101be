"""Reports parameters that are annotated as ``str`` and get a list of messages.

Conversational data gives functions lists of dicts. A comparison with such a value is false and no
error, so a function that expects a text gives every sample the same reward. The first sample of
each column is checked, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from guerdon._batch.columns import TEXT
from guerdon._system.warning import warn
from guerdon.errors import QuietRewardWarning

if TYPE_CHECKING:
    from guerdon._batch.layout import Route, Source
    from guerdon._functions.spec import FunctionSpec

# Sources of values that belong to one sample each.
_KINDS = ("own", "dataset")
_INSTEAD = {
    "completion": "Take the parameter text in its place: it is the last assistant message as plain text, whatever the data.",
    "prompt": 'The text of its last message is prompt[-1]["content"]; the parameter text is that of the completion.',
}


class TextParameters:
    """The parameters of one dispatcher's functions that were not checked yet.

    Args:
        specs: The functions, in the order of every batch's routes.
    """

    def __init__(self, specs: Iterable[FunctionSpec]) -> None:
        self._left = [
            (place, parameter)
            for place, spec in enumerate(specs)
            if spec.shape == "sample" and not spec.rowwise and spec.batch_size is None
            for parameter in spec.wants.texts
            if parameter != TEXT
        ]  # replaced as a whole, by whatever thread has a batch

    def check(self, routes: Sequence[Route], given: Callable[[Source], Any]) -> None:
        """Checks the first sample of a batch.

        Args:
            routes: One per function.
            given: The values that come from a source.
        """
        if not self._left:
            return
        left = []
        for place, parameter in self._left:
            route = routes[place]
            source = route.available.get(parameter)
            values = given(source) if source is not None and source[0] in _KINDS else None
            if not isinstance(values, list) or not values:
                left.append((place, parameter))
            elif _is_messages(values[0]):
                name = route.consumer.spec.name
                warn(
                    f"reward function {name!r}: its parameter {parameter!r} is annotated as str, but the data is "
                    f"conversational: it gets a list of messages, such as {_shown(values[0])}. "
                    f"{_INSTEAD.get(parameter, 'Annotate it as a list, and read the content of its messages.')}",
                    category=QuietRewardWarning,
                )
        self._left = left


def _is_messages(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
