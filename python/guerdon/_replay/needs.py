"""Columns that functions need, and those that a journal has: decided before any call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guerdon._batch.token_counts import counting
from guerdon._functions.signature import RECORDERS, Wants
from guerdon._functions.spec import FunctionSpec
from guerdon.errors import DataError

if TYPE_CHECKING:
    from guerdon._replay.survey import Survey

__all__ = ["Needs", "needs"]

_OF_RESERVED: Final = {
    "prompt": "prompt",
    "prompts": "prompt",
    "completion": "completion",
    "completions": "completion",
    "text": "completion",
    "texts": "completion",
    "completion_ids": "completion_ids",
}
"""The journal's text column of each reserved name; those without one are never in a journal."""
_SAMPLE: Final = ("prompt", "completion")


@dataclass(frozen=True)
class Needs:
    """Columns that are read and passed to the functions.

    Attributes:
        texts: The journal's text columns that some function gets: ``"prompt"``, ``"completion"``
            and names of the dataset's columns.
        notes: What a reader of the results should know: a sentence each.
    """

    texts: list[str]
    notes: list[str]


def needs(specs: Sequence[FunctionSpec], survey: Survey) -> Needs:
    """Returns the columns that these functions get from the journal.

    Raises:
        DataError: It lacks something that a function can't do without; the message names all.
    """
    available = survey.available()
    parts = survey.parts_with_rows()
    texts: dict[str, None] = {}
    notes: dict[str, None] = {}
    lacking: dict[str, list[str]] = {}
    for spec in specs:
        for called, wants in _wants(spec):
            takes_all = wants.everything or wants.row
            for name in wants.named:
                if name in RECORDERS:
                    continue
                text = _OF_RESERVED.get(name) if name in wants.reserved else name
                having = available.get(text, []) if text is not None else []
                if len(having) < len(parts) and name in wants.required:
                    lacking.setdefault(called, []).append(_lacks(name, text, len(having), len(parts)))
                elif having:
                    texts[str(text)] = None
                elif text is not None:
                    note = (
                        f"{called!r} uses its default for {name!r}, which the journal lacks: in training it may have "
                        "got the value."
                    )
                    notes[note] = None
            if wants.everything and "completion" not in available:
                lacking.setdefault(called, []).append(_lacks("completions", "completion", 0, len(parts)))
            if takes_all:
                given = [name for name in available if name not in _SAMPLE]
                texts.update(dict.fromkeys(available if wants.everything else given))
                shown = ", ".join(map(repr, given)) or "none"
                notes[f"{called!r} takes all columns: it gets those that the journal has ({shown})."] = None
    if lacking:
        raise DataError(_message(lacking, available))
    return Needs(list(texts), list(notes))


def _wants(spec: FunctionSpec) -> Iterator[tuple[str, Wants]]:
    yield spec.name, spec.wants
    if spec.finish is not None:
        yield f"{spec.name}.finish_group", spec.finish
    counts = counting(spec)
    if counts is not None:
        yield f"{spec.name}, Limit(tokens=)", counts.wants


def _lacks(name: str, text: str | None, having: int, parts: int) -> str:
    what = f"the {text}" if text in _SAMPLE else f"the column {name!r}"
    if text is None:
        return f"{name!r}, which no journal keeps"
    return f"{what} (only {having} of {parts} parts have it)" if having else what


def _message(lacking: dict[str, list[str]], available: Iterable[str]) -> str:
    lines = ["the journal lacks what functions ask for, so nothing was scored:"]
    lines += [f"  {called!r}: {', '.join(dict.fromkeys(names))}" for called, names in lacking.items()]
    there = [f"the {name}" if name in _SAMPLE else f"the column {name!r}" for name in available]
    lines.append(f"It has: {', '.join(there) or 'no texts and no columns'}.")
    lines.append(
        "A later run keeps them with Journal(folder, texts=True, columns=[…]). To replay the other functions alone, give "
        "them alone: REWARDS:a,b."
    )
    return "\n".join(lines)
