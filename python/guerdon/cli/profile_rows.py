"""DATA of ``guerdon profile``: rows with the functions' columns, with or without completions.

A long file gives as many rows as wished, in whole groups from all of it; where some rows have
completions, of prompts that have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from typing import Any, Final

from guerdon._functions.spec import FunctionSpec
from guerdon.cli.field_mapping import FieldMapping, FieldOptions, map_fields
from guerdon.profile.calibration import spread
from guerdon.profile.exit_codes import UsageError
from guerdon.profile.input_rows import InputFile

__all__ = ["read_rows"]

_LARGEST: Final = 512
"""Rows of a group: a file may have one prompt throughout."""


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
    if generations is not None and not mapping.left_out:
        groups = [range(start, start + generations) for start in range(0, mapping.rows, generations)]
    else:
        whole = any(spec.shape == "group" or spec.finish is not None for spec in specs)
        groups = _of_prompts((mapping.row(row) for row in source.rows()), whole)
    count = sum(map(len, groups))
    chosen = {place for group in spread(groups, max(1, most * len(groups) // count)) for place in group}
    return [mapping.row(row) for place, row in enumerate(source.rows()) if place in chosen], mapping


def _of_prompts(rows: Iterable[dict[str, Any]], whole: bool) -> list[range]:
    """Places of the rows of each prompt that has a completion, with `whole` only where all rows of
    the prompt have one, if any such prompt exists; a row without a prompt is alone."""
    found: list[tuple[range, int]] = []
    for _, run in groupby(enumerate(rows), key=lambda each: each[1].get("prompt", each[0])):
        while piece := [(place, row.get("completion") is not None) for place, row in islice(run, _LARGEST)]:
            found.append((range(piece[0][0], piece[-1][0] + 1), sum(there for _, there in piece)))
    complete = [group for group, recorded in found if recorded == len(group)] if whole else []
    return complete or [group for group, recorded in found if recorded] or [group for group, _ in found]
