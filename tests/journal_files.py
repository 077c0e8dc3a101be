"""Journals for tests, written with pyarrow: rows whose truths the test knows.

- A row is a dictionary; `row` fills in what the test does not say.
- `training` is a small run with a truth in each corner; `many_rows` makes millions, quickly.
- Nothing here reads or needs the journal's own writer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from guerdon._insight.journal.schema import COLUMNS, arrow_type

START: Final = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

SCHEMA: Final = pa.schema([(name, arrow_type(name)) for name in COLUMNS])
"""Columns of each journal; texts and chosen columns come behind them."""

HOSTILE_TEXTS: Final = (
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 2'>",
    '"><svg onload=window.hacked=3>',
    "<!-- <![CDATA[ ]]> &lt;b&gt; &amp;nbsp;",
    "javascript:alert(1) <a href='javascript:window.hacked=4'>x</a>",
    "left \u202egnitirw thgir ot tfel\u202c \u2066isolated\u2069 \u200f",
    "nul \x00 bell \x07 escape \x1b[31m \x7f",
    "line \u2028 paragraph \u2029 zero\u200bwidth \ufeff mark",
    "e\u0301 o\u0308 한국어 العربية 🧑\u200d🚀 \U0001f600 \U000e0041",
    "<style>body{display:none}</style><base href=https://example.invalid/>",
    "{{7*7}} ${7*7} __DATA__ %s {0}",
    "x" * 5000,
    "",
)
"""Completions that a page must show and never obey."""


def row(**given: Any) -> dict[str, Any]:
    """One row; what is not given is that of an unremarkable success."""
    values: dict[str, Any] = {
        "run": "run-1",
        "batch": 0,
        "step": 0,
        "rank": 0,
        "group": 0,
        "sample": 0,
        "function": "correct",
        "version": "0123456789abcdef",
        "weight": 1.0,
        "status": "ok",
        "submitted": START + timedelta(seconds=10 * (given.get("batch") or 0)),
        "queue_s": 0.001,
        "run_s": 0.01,
        "attempts": 1,
    }
    values.update(given)
    if values["status"] == "ok":
        values.setdefault("value", 1.0)
    if isinstance(values.get("extra"), dict):
        values["extra"] = json.dumps(values["extra"])
    values.setdefault("reward", values.get("value"))
    return values


def table(
    rows: Iterable[dict[str, Any]],
    *,
    texts: bool = False,
    columns: Sequence[str] = (),
    kinds: dict[str, str] | None = None,
    schema: str = "1",
    dispatcher: dict[str, Any] | None = None,
) -> pa.Table:
    """The rows as the journal has them, with its key-value metadata.

    Args:
        texts: Also the columns ``prompt`` and ``completion``.
        columns: Names of chosen columns: ``column_<name>`` of the rows.
        kinds: Which of texts and columns are JSON; ``"text"`` for those that are not named.
        schema: The number of the schema.
        dispatcher: What the metadata say of the dispatcher: nothing by default.
    """
    rows = list(rows)
    extra = [*(("prompt", "completion") if texts else ()), *(f"column_{name}" for name in columns)]
    fields = [*SCHEMA, *(pa.field(name, pa.string()) for name in extra)]
    arrays = [pa.array([row.get(field.name) for row in rows], type=field.type) for field in fields]
    known = {name.removeprefix("column_"): "text" for name in extra} | (kinds or {})
    metadata = {"guerdon.schema": schema, "guerdon.kinds": json.dumps(known)}
    metadata["guerdon.dispatcher"] = json.dumps(dispatcher or {})
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=metadata))


def write_part(
    folder: Path, rows: pa.Table, *, rank: int = 0, pid: int = 4242, part: int = 0, run: str = "run-1"
) -> Path:
    """A finished part; returns its file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run}-r{rank}-{pid}-{part:05}.parquet"
    pq.write_table(rows, path, compression="zstd", row_group_size=65536)
    return path


def write_open_part(
    folder: Path,
    rows: pa.Table,
    *,
    rank: int = 0,
    pid: int = 4242,
    part: int = 0,
    run: str = "run-1",
    cut: int = 0,
    chunk: int = 1000,
) -> Path:
    """A part that is being written, as its writer left it: an IPC stream without an end.

    Args:
        cut: How many bytes of its last message are missing.
        chunk: Rows of a message.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run}-r{rank}-{pid}-{part:05}.arrows"
    whole = pa.BufferOutputStream()
    with pa.ipc.new_stream(whole, rows.schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)) as stream:
        stream.write_table(rows, max_chunksize=chunk)
    content = whole.getvalue().to_pybytes()[:-8]  # without the end-of-stream mark
    path.write_bytes(content[: len(content) - cut])
    return path


def write_journal(folder: Path, rows: Iterable[dict[str, Any]], *, parts: int = 1, **options: Any) -> Path:
    """A journal of the rows: for each run and rank so many parts. `options` are those of `table`.

    Returns:
        The folder.
    """
    of: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for each in rows:
        of.setdefault((each["run"], each["rank"]), []).append(each)
    folder.mkdir(parents=True, exist_ok=True)
    for (run, rank), mine in of.items():
        for part, chosen in enumerate(np.array_split(np.arange(len(mine)), parts)):
            rows_of_part = table([mine[place] for place in chosen], **options)
            write_part(folder, rows_of_part, rank=rank, pid=4242 + rank, part=part, run=run)
    return folder


def training(
    *, steps: int = 40, groups: int = 4, generations: int = 8, ranks: int = 2, seed: int = 0, texts: bool = False
) -> list[dict[str, Any]]:
    """A training run with a truth in each corner.

    - ``correct`` (weight 1) is 0 or 1 and rises from one in four to nine in ten.
    - ``format`` (weight 0.5) is 1 for all from half-way on: it tells nothing apart any more. Its
      version changes at that step.
    - ``correct_strict`` (weight 0) is ``correct``: the two correlate perfectly.
    - ``quality`` (weight 0.2) is a panel of ``small`` and ``large``, which agree in three of four;
      it costs 0.001 a sample, and times out for each tenth sample in the second quarter of the
      steps.
    - ``careful`` (weight 0) is asked three times: ``votes`` and ``agreement``.
    - Group 0 of each step has the same ``correct`` and ``format`` in all its samples.
    - Each 97th call of ``correct`` ends with an error whose reason is markup.
    """
    random = np.random.default_rng(seed)
    rows = []
    for step in range(steps):
        progress = step / max(1, steps - 1)
        for rank in range(ranks):
            for sample in range(groups * generations):
                group = sample // generations
                place = {"batch": step, "step": step, "rank": rank, "group": group, "sample": sample}
                if texts:
                    place |= {
                        "prompt": f"What is {step} + {group}?",
                        "completion": HOSTILE_TEXTS[(step + sample) % len(HOSTILE_TEXTS)],
                        "column_answer": str(step + group),
                    }
                right = float(random.random() < 0.25 + 0.65 * progress) if group else 1.0
                shape = 1.0 if progress >= 0.5 or not group else float(random.integers(0, 5)) / 4
                version = "aaaaaaaaaaaaaaaa" if progress < 0.5 else "bbbbbbbbbbbbbbbb"
                times = {"run_s": float(random.lognormal(-4, 0.5)), "queue_s": float(random.lognormal(-6, 0.5))}
                if len(rows) % 97 == 96:
                    error = {
                        "status": "error",
                        "reason": f"ValueError: <b>no number</b> in sample {sample}",
                        "reward": None,
                    }
                    rows.append(row(**place, **times, **error, traceback="  File 'rewards.py', line 4, in correct\n"))
                else:
                    rows.append(row(**place, **times, value=right))
                rows.append(row(**place, function="format", version=version, value=shape, weight=0.5, run_s=2e-5))
                rows.append(row(**place, function="correct_strict", value=right, weight=0.0))
                rows.append(_panel(place, progress, random))
                votes = [7.0, 7.0, float(random.choice([7.0, 3.0]))]
                agreement = votes.count(7.0) / 3
                extra = {"votes": votes, "agreement": agreement}
                rows.append(row(**place, function="careful", value=7.0, weight=0.0, extra=extra, run_s=0.4))
    return rows


def _panel(place: dict[str, Any], progress: float, random: np.random.Generator) -> dict[str, Any]:
    judged = {**place, "function": "quality", "weight": 0.2}
    times = {"run_s": float(random.lognormal(0, 0.4)), "queue_s": float(random.lognormal(-1, 0.6))}
    if 0.25 <= progress < 0.5 and place["sample"] % 10 == 9:
        reason = "TimeoutError: no answer within 30 s"
        return row(**judged, **(times | {"run_s": 30.0}), status="timeout", reason=reason, reward=0.0, attempts=3)
    small = float(random.integers(0, 11))
    large = small if random.random() < 0.75 else min(10.0, small + 3.0)
    extra = {"small": small, "large": large}
    usage = {"prompt_tokens": 300, "completion_tokens": 20, "cost": 0.001, "answer": f"Score: {small:g}"}
    return row(**judged, **times, value=(small + large) / 2, extra=extra, **usage)


def many_rows(
    count: int, *, functions: int = 4, generations: int = 8, seed: int = 0, chunk: int = 1 << 18
) -> Iterator[pa.Table]:
    """Yields the rows in tables of about `chunk`: steps of 1024 samples each.

    One in 200 failed, with few reasons; one function is a judge with costs and members.
    """
    random = np.random.default_rng(seed)
    per_step = 1024 * functions
    chunk = max(chunk // per_step, 1) * per_step
    names = [f"function_{each}" for each in range(functions - 1)] + ["panel"]
    for first in range(0, count, chunk):
        at = np.arange(first, min(first + chunk, count))
        function = (at % functions).astype(np.int32)
        sample = (at // functions) % 1024
        step = at // per_step
        judged = function == functions - 1
        failed = random.random(len(at)) < 0.005
        value = np.where(function == 0, random.integers(0, 2, len(at)), np.round(random.random(len(at)), 3))
        small = np.round(random.random(len(at)), 2)
        extra = [
            f'{{"small": {one}, "large": {two}}}' if chosen else None
            for one, two, chosen in zip(small, value, judged & ~failed, strict=True)
        ]
        reasons = pa.array(["ValueError: no number in the completion", "TimeoutError: no answer within 30 s"])
        which = pa.array(random.integers(0, 2, len(at)), mask=~failed)
        submitted = np.datetime64("2026-03-01T12:00:00", "us") + (step * 10_000_000).astype("timedelta64[us]")
        values: dict[str, Any] = {
            "run": pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(at), np.int32)), ["run-1"]),
            "batch": step,
            "step": step,
            "rank": np.zeros(len(at), np.int32),
            "group": sample // generations,
            "sample": sample,
            "function": pa.DictionaryArray.from_arrays(pa.array(function), names),
            "version": pa.array(["0123456789abcdef"]).take(pa.array(np.zeros(len(at), np.int32))),
            "weight": np.ones(len(at), np.float32),
            "value": pa.array(value, mask=failed),
            "reward": pa.array(value.astype(np.float32), mask=failed),
            "status": pa.DictionaryArray.from_arrays(pa.array(failed.astype(np.int32)), ["ok", "error"]),
            "reason": reasons.take(which),
            "submitted": submitted,
            "queue_s": random.lognormal(-5, 1, len(at)),
            "run_s": random.lognormal(-3, 1, len(at)),
            "attempts": np.ones(len(at), np.uint16),
            "prompt_tokens": pa.array(np.full(len(at), 300), mask=~judged),
            "completion_tokens": pa.array(np.full(len(at), 20), mask=~judged),
            "cost": pa.array(np.full(len(at), 0.001), mask=~judged),
            "extra": extra,
        }
        arrays = [
            pa.array(values[field.name], type=field.type) if field.name in values else pa.nulls(len(at), field.type)
            for field in SCHEMA
        ]
        metadata = {"guerdon.schema": "1", "guerdon.kinds": "{}", "guerdon.dispatcher": "{}"}
        yield pa.Table.from_arrays(arrays, schema=SCHEMA.with_metadata(metadata))
