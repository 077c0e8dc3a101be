"""Prompt templates with the sample's columns, in the style of ``str.format``. They are parsed and
checked once, when the judge is made."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guerdon._lanes.http.column_texts import Field
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon._batch.columns import Single

__all__ = ["CONVERSATION", "Field", "MadeField", "template"]

# Stands for all turns of the prompt and the completion.
CONVERSATION = "conversation"


@dataclass(frozen=True)
class MadeField(Field):
    """Texts that a function's own code makes of one or more columns."""

    def texts(
        self, values: Mapping[str, Sequence[object] | Single], samples: int, function: str, *, always: bool
    ) -> tuple[str, list[object]]:
        """The column that its function makes."""
        return self.made(values, samples)

    def made(self, values: Mapping[str, Sequence[object] | Single], samples: int) -> tuple[str, list[object]]:
        """Gives the kind of the engine's column, and the column.

        Args:
            values: Of its columns, and of those optional ones that are there.
        """
        raise NotImplementedError


def template(text: str, function: str, argument: str) -> list[str | Field]:
    """The pieces of a template: texts as they are, and fields.

    Raises:
        RegistrationError: The template is wrong.
    """
    try:
        return list(_pieces(text))
    except ValueError as error:
        raise RegistrationError(
            f"reward function {function!r}: {argument}={_short(text)}: {error}. Name columns as in {{completion}}, and write "
            "literal braces as {{ and }}."
        ) from None


def _pieces(text: str) -> Iterator[str | Field]:
    for literal, name, spec, conversion in string.Formatter().parse(text):
        if literal:
            yield literal
        if name is None:
            continue
        column = re.split(r"[.\[]", name, maxsplit=1)[0]
        if not column or column.isdigit():
            raise ValueError(f"{{{name}}} names no column")
        if column[0] in "\"'" or column[0].isspace():
            raise ValueError(f"{{{name}…}} is no field but looks like JSON, whose braces must be doubled")
        if spec and "{" in spec:
            raise ValueError(f"{{{name}:{spec}}} has a field in a field")
        if column == CONVERSATION and not (name[len(column) :] or conversion or spec):
            yield from (Field("prompt", form="turns"), "\n\n", Field("completion", form="turns"))
            continue
        rest = name[len(column) :] + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
        yield Field(column, rest)


def _short(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= 80 else f"{shown[:77]}…"
