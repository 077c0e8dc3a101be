"""OUT: a JSON object a sample as `guerdon score` writes it, with the journal's keys of the sample.

A chunk is flushed once it is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guerdon._insight.journal.schema import KEYS
from guerdon._system.output_path import why_no_file
from guerdon.errors import DataError
from guerdon.results.status import Status

if TYPE_CHECKING:
    from guerdon._replay.chunks import Chunk
    from guerdon._replay.scoring import Outcomes

__all__ = ["Output"]

_KEYS: Final = [name for name in KEYS if name != "function"]
_LABELS: Final = [status.label for status in Status]


class Output:
    """Takes the outcomes of one chunk after another.

    Raises:
        DataError: The file is there already, or can't be written.
    """

    def __init__(self, out: str | Path) -> None:
        path = Path(out)
        if os.path.isfile(path):
            raise DataError(f"{str(out)!r} is there already: choose another file for the new rewards.")
        why = why_no_file(path) or ("a link to nothing stands there" if os.path.lexists(path) else None)
        if why is not None:
            raise DataError(f"{str(out)!r} can't be written: {why}.")
        if path.suffix.lower() not in (".jsonl", ".ndjson"):
            raise DataError(f"{str(out)!r}: the new rewards are written as JSONL. Give a name that ends in .jsonl.")
        self._file = path.open("xb")

    def write(self, chunk: Chunk, outcomes: Mapping[str, Outcomes]) -> None:
        """Append a row for each sample."""
        keys = chunk.table.select(_KEYS).take(chunk.first_rows).to_pylist()
        rows = ({**key, **_row(outcomes, sample)} for sample, key in enumerate(keys))
        self._file.write("".join(f"{json.dumps(row)}\n" for row in rows).encode())
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _row(outcomes: Mapping[str, Outcomes], sample: int) -> dict[str, Any]:
    rewards = {name: found.reward[sample] for name, found in outcomes.items()}
    reasons = {name: found.reasons[sample] for name, found in outcomes.items() if sample in found.reasons}
    return {
        # `str` writes the fewest digits that give the same float32.
        "rewards": {name: float(str(value)) if value == value else None for name, value in rewards.items()},
        "status": {name: _LABELS[found.status[sample]] for name, found in outcomes.items()},
        **({"reasons": reasons} if reasons else {}),
    }
