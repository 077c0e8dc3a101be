"""The texts of a batch's columns in requests.

- A column of strings is used as it is, without a copy. Other values become strings here, once a
  batch, on the caller's thread.
- A value that can't go into a request is refused before any call, with its column and sample.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from guerdon._batch.columns import Single
from guerdon._lanes.http.images import Images
from guerdon._lanes.http.message_forms import in_form, system_texts, tools
from guerdon._lanes.http.messages import as_messages, is_messages, transcript, turns, with_calls
from guerdon.errors import DataError

__all__ = ["JSON", "PLAIN", "Field", "texts_of"]

# The engine's names of columns of texts, and of texts that are JSON already.
PLAIN = "text"
JSON = "json"


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


def texts_of(
    values: Sequence[object] | Single,
    field: Field,
    samples: int,
    function: str,
    *,
    others: Sequence[Sequence[object] | Single] = (),
    always: bool = False,
) -> tuple[str, list[object]] | None:
    """Returns the kind of column that the engine gets for a field, and the column; None where it
    can take the values as they are.

    Args:
        values: One per sample, or one for all.
        function: Name of the judge, for messages.
        others: The other columns that the field takes: of images, or the rest of a conversation.
        always: Make a column of its own of it in any case, of the same kind each time.

    Raises:
        DataError: A value can't go into a request.
    """
    if field.form:
        return _conversations((values, *others), field, samples, function)
    if isinstance(values, Single):
        kind, one = texts_of([values.value], field, 1, function, always=always) or (PLAIN, [values.value])
        return kind, one * samples
    if not always and not field.rest and all(type(value) is str for value in values):
        return None
    make = _as_json if field.json else _as_text
    made: list[object] = []
    for sample, value in enumerate(values):
        try:
            made.append(make(value, field))
        except Exception as error:
            raise DataError(
                f"column {field.column!r} of sample {sample} can't go into a request of {function!r} as {field}: "
                f"{type(error).__name__}: {error}."
            ) from error
    return JSON if field.json else PLAIN, made


def _as_text(value: Any, field: Field) -> str:
    if field.rest:
        return str(f"{{0{field.rest}}}".format(value))
    if isinstance(value, str):
        return str(value)
    return transcript(value) if is_messages(value) else format(value)


def _as_json(value: Any, field: Field) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """Arrays, tensors and their numbers as lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is not JSON")


def _conversations(
    columns: Sequence[Sequence[object] | Single],
    field: Field,
    samples: int,
    function: str,
) -> tuple[str, list[object]]:
    """Returns conversations or images in the form of a field; the samples of a group share
    theirs."""
    encoder = Images()
    known: dict[tuple[int, ...], str] = {}
    made: list[object] = []
    for sample in range(samples):
        values = [_of(column, sample) for column in columns]
        same = tuple(map(id, values))
        try:
            text = known.get(same)
            if text is None:
                text = known[same] = _in_form(field, encoder, *values)
        except Exception as error:
            raise DataError(
                f"column {field.column!r} of sample {sample} can't go into a request of {function!r}: "
                f"{type(error).__name__}: {error}."
            ) from error
        made.append(text)
    return PLAIN if field.form == "turns" else JSON, made


def _of(values: Sequence[object] | Single, sample: int) -> object:
    return values.value if isinstance(values, Single) else values[sample]


def _in_form(field: Field, encoder: Images, value: object, other: object = None) -> str:
    if field.form == "images":
        return encoder.parts(value, field.api)
    role = _role(field.column)
    if field.form == "turns":
        return turns(value, role)
    if field.form == "messages":
        messages = as_messages(value, role, encoder, other)
        return "".join(f"{_json(message)}," for message in in_form(messages, field.api, field.column))
    whole = with_calls(value, role) + with_calls(other, _role(field.also))
    if field.form == "tools":
        # Named, since the conversation calls them; the judge itself is to call none.
        named = tools(whole)
        return f'"tools":{_json(named)},"tool_choice":{{"type":"none"}},' if named else ""
    texts = system_texts(whole)
    if field.form == "more system":
        return "".join(f",{_json(text)}" for text in texts)
    return f'"system":{_json(texts)},' if texts else ""


def _role(column: str) -> str:
    return "assistant" if column == "completion" else "user"


def _json(value: object) -> str:
    return json.dumps(value, allow_nan=False, default=_plain)
