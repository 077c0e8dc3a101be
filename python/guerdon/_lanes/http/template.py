"""Prompt templates with the sample's columns, in the style of ``str.format``. They are parsed and
checked once, when the judge is made."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guerdon._lanes.http.column_texts import texts_of
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon._batch.columns import Single

__all__ = ["CONVERSATION", "Field", "MadeField", "template"]

# Stands for all turns of the prompt and the completion.
CONVERSATION = "conversation"


@dataclass(frozen=True)
class Field:
    """A column in a template.

    Attributes:
        column: Its name, that of a dataset column or a reserved one (``prompt``, ``completion``,
            ``text``).
        rest: What stands behind the name: ``[0]``, ``.real``, ``!r``, ``:.2f``.
        json: It goes as JSON, not as text within a text.
        form: How a conversation goes: as its text (""), as turns with roles ("turns"), as messages
            of the request ("messages"), its system messages alone ("system", or "more system"
            behind others), the tools that it calls ("tools"), or, of a column of images, as parts
            of a message ("images").
        images: Name of the column with the sample's images, for ``form="messages"``.
        also: Name of the column with the rest of the conversation, for its system messages and
            tools.
        api: Whose form messages and images have.
    """

    column: str
    rest: str = ""
    json: bool = False
    form: str = ""
    images: str = ""
    also: str = ""
    api: str = "chat"

    @property
    def columns(self) -> list[str]:
        """All columns that it takes."""
        return [name for name in (self.column, self.images, self.also) if name]

    @property
    def optional(self) -> tuple[str, ...]:
        """Columns that it takes where they are there."""
        return ()

    @property
    def is_text(self) -> bool:
        """No: a template says which part of a conversation it takes by its form."""
        return False

    def texts(
        self, values: Mapping[str, Sequence[object] | Single], samples: int, function: str, *, always: bool
    ) -> tuple[str, list[object]] | None:
        """Gives the kind of the engine's column, and the column; None where it takes the values as
        they are."""
        own, *others = (values[name] for name in self.columns)
        return texts_of(own, self, samples, function, others=others, always=always)

    def __str__(self) -> str:
        return f"{{{self.column}{self.rest}}}"


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
