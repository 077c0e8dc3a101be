"""DATA of ``guerdon profile``: rows with the functions' columns, with or without completions.

A long file gives as many rows as wished, in whole groups from all of it; where some rows have
completions, of prompts that have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from typing import Any, Final

from guerdon._functions.spec import FunctionSpec
from guerdon.cli.field_mapping import FieldMapping, FieldOptions, find, map_fields
from guerdon.profile.calibration import spread
from guerdon.profile.exit_codes import UsageError
from guerdon.profile.input_rows import InputFile

__all__ = ["read_rows"]

_LOOKED_AT: Final = 512


def read_rows(
    source: InputFile, specs: Sequence[FunctionSpec], fields: FieldOptions, most: int, generations: int | None
) -> tuple[list[dict[str, Any]], FieldMapping]:
    """Rows with ``prompt``, the functions' columns and, where the file has them, ``completion``;
    and the mapping of the file's fields.

    Args:
        most: How many rows, about.
        generations: Completions per prompt; by default what the prompts say.

    Raises:
        UsageError: There are no rows, or they lack a column that a function asks for.
    """
    mapping = map_fields(source, specs, fields, rollouts=False)
    if generations is not None and mapping.rows % generations:
        raise UsageError(f"{source.name} has {mapping.rows} rows, not a multiple of {generations} (--num-generations).")
    prompt = fields.prompt or "prompt"
    if mapping.left_out:
        groups = _recorded(
            map(mapping.row, source.rows()), any(spec.shape == "group" or spec.finish is not None for spec in specs)
        )
        count = sum(map(len, groups))
        chosen = {place for group in spread(groups, max(1, most * len(groups) // count)) for place in group}
    else:
        size = generations or _group([str(find(row.fields, prompt)) for row in islice(source.rows(), _LOOKED_AT)])
        chosen = _chosen(mapping.rows, size, most)
    return [mapping.row(found) for place, found in enumerate(source.rows()) if place in chosen], mapping


def _recorded(rows: Iterable[dict[str, Any]], whole: bool) -> list[list[int]]:
    """Places of the rows of each prompt that has a completion, with `whole` only where all rows of
    the prompt have one, if any such prompt exists; a row without a prompt is alone."""
    runs = groupby(enumerate(rows), key=lambda each: str(each[1].get("prompt", each[0])))
    groups = [[(place, row.get("completion") is not None) for place, row in run] for _, run in runs]
    complete = [group for group in groups if all(there for _, there in group)] if whole else []
    chosen = complete or [group for group in groups if any(there for _, there in group)]
    return [[place for place, _ in group] for group in chosen]


def _group(prompts: Sequence[str]) -> int:
    """The length of the runs of equal prompts, if all that were looked at are as long."""
    runs = [sum(1 for _ in run) for _, run in groupby(prompts)]
    whole = runs[:-1] if len(runs) > 1 else runs  # the last one may go on
    return whole[0] if len(set(whole)) == 1 and runs[-1] <= whole[0] else 1


def _chosen(count: int, size: int, most: int) -> set[int]:
    """Places of rows: whole groups, spread evenly over the file."""
    starts = [start * size for start in spread(range(count // size), max(1, most // size))]
    whole = len(starts) >= count // size
    return set(range(count)) if whole else {start + offset for start in starts for offset in range(size)}
