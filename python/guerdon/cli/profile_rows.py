"""DATA of ``guerdon profile``: rows with the functions' columns, with or without completions.

- Completions are used where every row has one; if none has, references replace them.
- For a long file, whole groups are taken from all of it, as many as wished.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from guerdon._batch.columns import RECORDERS
from guerdon._functions.spec import FunctionSpec
from guerdon.cli.field_mapping import ABSENT, FieldOptions, find, listed, suggestion
from guerdon.profile.exit_codes import UsageError
from guerdon.profile.input_rows import InputFile

__all__ = ["read_rows"]

_LOOKED_AT: Final = 512
_MADE: Final = frozenset(
    {
        *("prompt", "prompts", "completion", "completions", "completion_ids", "text", "texts"),
        *("environment", "environments", "trainer_state", *RECORDERS),
    }
)


def read_rows(
    source: InputFile, specs: Sequence[FunctionSpec], fields: FieldOptions, most: int, generations: int | None
) -> list[dict[str, Any]]:
    """Rows with ``prompt``, the functions' columns and, where the file has them, ``completion``.

    Args:
        most: How many rows, about.
        generations: Completions per prompt; by default what the prompts say.

    Raises:
        UsageError: There are no rows, or they lack a column that a function asks for.
    """
    count, prompts = 0, []
    prompt = fields.prompt or "prompt"
    for row in source.rows(strict=True):
        count += 1
        if count <= _LOOKED_AT:
            prompts.append(str(find(row.fields, prompt)))
    if not count:
        raise UsageError(f"{source.name} has no rows.")
    size = generations or _group(prompts)
    if generations is not None and count % generations:
        raise UsageError(f"{source.name} has {count} rows, not a multiple of {generations} (--num-generations).")
    chosen = _chosen(count, size, most)
    rows = [_row(found.fields, fields) for place, found in enumerate(source.rows()) if place in chosen]
    with_completion = sum("completion" in row for row in rows)
    if 0 < with_completion < len(rows):
        raise UsageError(
            f"{with_completion} of {len(rows)} rows of {source.name} have the field {fields.completion!r}, the others have not: "
            "give all rows a completion, or none. --completion-field FIELD names it."
        )
    if fields.completion != "completion" and not with_completion:
        raise UsageError(f"no row of {source.name} has the field {fields.completion!r} (--completion-field).")
    _check(source, rows, specs, fields)
    return rows


def _group(prompts: Sequence[str]) -> int:
    """The length of the runs of equal prompts, if all that were looked at are as long."""
    runs = [sum(1 for _ in run) for _, run in groupby(prompts)]
    whole = runs[:-1] if len(runs) > 1 else runs  # the last one may go on
    return whole[0] if len(set(whole)) == 1 and runs[-1] <= whole[0] else 1


def _chosen(count: int, size: int, most: int) -> set[int]:
    """Places of rows: whole groups, spread evenly over the file."""
    groups, wished = max(1, count // size), max(1, most // size)
    if groups <= wished:
        return set(range(count))
    starts = (size * (place * groups // wished) for place in range(wished))
    return {start + offset for start in starts for offset in range(size)}


def _row(found: dict[str, Any], fields: FieldOptions) -> dict[str, Any]:
    taken = {*fields.taken, *fields.columns}
    row = {name: value for name, value in found.items() if name not in taken and name not in _MADE}
    for column, name in (
        *fields.columns.items(),
        ("prompt", fields.prompt or "prompt"),
        ("completion", fields.completion),
    ):
        value = find(found, name)
        if value is not ABSENT and not (column == "completion" and value is None):
            row[column] = value
    return row


def _check(
    source: InputFile, rows: Sequence[dict[str, Any]], specs: Sequence[FunctionSpec], fields: FieldOptions
) -> None:
    """Refuse rows that lack what a function asks for."""
    have = {name: None for row in rows for name in row}
    for column, name in fields.columns.items():
        if column not in have:
            raise UsageError(f"--map {column}={name}: no row of {source.name} has the field {name!r}.")
    for function, column in _required(specs):
        lacking = sum(column not in row for row in rows)
        if lacking and column not in have:
            raise UsageError(
                f"reward function {function!r} wants the column {column!r}, but no row of {source.name} has such a field. The rows "
                f"have: {listed(have)}.{suggestion(column, have)} Name the field: --map {column}=FIELD."
            )
        if lacking:
            raise UsageError(
                f"{lacking} of {len(rows)} rows of {source.name} have no field {column!r}, which {function!r} wants. Add it, with "
                "null where there is no value."
            )
    if any({"prompt", "prompts"} & set(spec.wants.required) for spec in specs) and "prompt" not in have:
        raise UsageError(f"no row of {source.name} has a prompt. Name its field: --prompt-field FIELD.")


def _required(specs: Sequence[FunctionSpec]) -> Iterator[tuple[str, str]]:
    for spec in specs:
        for name in spec.wants.required:
            if name not in _MADE:
                yield spec.name, name
