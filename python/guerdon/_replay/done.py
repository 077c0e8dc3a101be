"""The rows that an earlier replay wrote: some ten bytes each, until their chunk comes by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guerdon._insight.journal.schema import KEYS
from guerdon._replay.chunks import Cells
from guerdon._replay.diff import Side
from guerdon._replay.output import written_rows
from guerdon.results.status import Status

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guerdon._replay.chunks import Chunk

__all__ = ["DoneRows"]

_COLUMNS: Final = [*KEYS, "version", "reward", "status", "reason"]
_CODES: Final = {status.label: int(status) for status in Status}
_Key = tuple[str, str, int, int, str]


class DoneRows:
    """What is in OUT.

    Attributes:
        rows: How many.
        versions: Of each function, rows by version.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.versions: dict[str, Counter[str]] = {}
        self._cells: dict[_Key, list[tuple[NDArray[np.uint32], NDArray[np.float32], NDArray[np.uint8]]]] = {}
        self._reasons: dict[_Key, dict[int, str]] = {}

    @classmethod
    def read(cls, out: str | Path) -> DoneRows:
        """Of an output that an earlier replay left.

        Raises:
            DataError: It is none.
        """
        done = cls()
        for writer, batch in written_rows(out, _COLUMNS):
            done._add(writer, batch)
        return done

    def of(self, chunk: Chunk, functions: Iterable[str]) -> dict[str, Side]:
        """The outcomes of the chunk's samples by function; `ABSENT` where there is no row. They
        are forgotten with this."""
        sides: dict[str, Side] = {}
        if not self._cells:
            return sides
        run, rank = chunk.table["run"][0].as_py(), chunk.table["rank"][0].as_py()
        batches = np.unique(chunk.batch).tolist()
        for name in functions:
            empty = Cells.empty(len(chunk))
            reasons: dict[int, str] = {}
            for batch in batches:
                key = (chunk.writer, run, rank, batch, name)
                if key not in self._cells:
                    continue
                places = np.flatnonzero(chunk.batch == batch)
                samples = chunk.sample[places]
                written, reward, status = (np.concatenate(each) for each in zip(*self._cells[key], strict=True))
                found = np.minimum(np.searchsorted(samples, written), len(samples) - 1)
                ours = samples[found] == written
                at = places[found[ours]]
                empty.reward[at], empty.status[at] = reward[ours], status[ours]
                known = self._reasons.get(key, {})
                reasons.update(
                    (int(p), known[int(s)]) for p, s in zip(at, written[ours], strict=True) if int(s) in known
                )
                if ours.all():
                    del self._cells[key]
                    self._reasons.pop(key, None)
            if empty.there.any():
                sides[name] = Side(empty.reward, empty.status, reasons)
        return sides

    def _add(self, writer: str, batch: Any) -> None:
        runs, ranks, numbers = (batch.column(name).to_pylist() for name in ("run", "rank", "batch"))
        functions, versions = batch.column("function").to_pylist(), batch.column("version").to_pylist()
        samples, rewards = batch.column("sample").to_pylist(), batch.column("reward").to_pylist()
        states, reasons = batch.column("status").to_pylist(), batch.column("reason").to_pylist()
        found: dict[_Key, list[int]] = {}
        for row, place in enumerate(zip(runs, ranks, numbers, functions, strict=True)):
            key: _Key = (writer, *place)
            found.setdefault(key, []).append(row)
            if reasons[row] is not None:
                self._reasons.setdefault(key, {})[samples[row]] = reasons[row][:300]
        for key, rows in found.items():
            self._cells.setdefault(key, []).append(
                (
                    np.array([samples[row] for row in rows], np.uint32),
                    np.array([np.nan if rewards[row] is None else rewards[row] for row in rows], np.float32),
                    np.array([_CODES[states[row]] for row in rows], np.uint8),
                )
            )
            self.versions.setdefault(key[-1], Counter())
        for name, version in zip(functions, versions, strict=True):
            self.versions[name][version or ""] += 1
        self.rows += batch.num_rows
