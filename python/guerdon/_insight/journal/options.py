"""The journal: every outcome of a dispatcher as a row on disk (docs/journal.md).

- Writing costs the trainer's thread nothing: the engine hands complete groups to a separate thread,
  and drops and counts those that can't be written in time.
- A part is a Parquet file, whole or not there; while it grows it is an Arrow stream beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from guerdon._system.launcher import launch_id
from guerdon._system.units import EXPECTED_BYTES, as_bytes
from guerdon.errors import RegistrationError, with_known_options

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Journal", "read_journal"]

_LEAST_PART: Final = 1 << 16
_LONGEST_RUN: Final = 200


@with_known_options
@dataclass(frozen=True)
class Journal:
    """Place and settings of a dispatcher's journal: ``Dispatcher(..., journal=Journal(...))``.

    It holds no file open and may be shared, copied and pickled; each dispatcher that is given it
    writes separate parts into the folder.

    Args:
        folder: Made if it isn't there. Several ranks, runs and dispatchers may share one.
        columns: Dataset columns to keep with each row, by name.
        texts: Whether to keep prompts and completions too: they may be private, and are most of a
            journal's size.
        rotate: Bytes after which a new part begins, as they are written; the Parquet file that a
            part becomes has about a tenth of them.
        run: A name of this run for the column ``run``. By default that of the launcher
            (``GUERDON_RUN_ID``, torchrun's ``--rdzv-id``, Ray's session and job, Slurm's job),
            which all hosts have, else the time at which it, or this process, was started, with its
            process id: the same for all ranks of a host.

    Raises:
        RegistrationError: The folder can't be made or written, or an option is wrong.

    Examples:
        >>> import tempfile
        >>> from guerdon import Dispatcher, Journal, read_journal, reward
        >>> length = reward(lambda text: float(len(text)), name="length")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Dispatcher([length], journal=Journal(folder, texts=True)) as dispatcher:
        ...         result = dispatcher.score(completions=["a", "bcd"], num_generations=2)
        ...     read_journal(folder, columns=["completion", "value"]).to_pydict()
        {'completion': ['a', 'bcd'], 'value': [1.0, 3.0]}
    """

    folder: str | os.PathLike[str]
    columns: Sequence[str] = ()
    texts: bool = False
    rotate: int | str = "256MiB"
    run: str | None = None

    def __post_init__(self) -> None:
        checked = {
            "folder": _folder(self.folder),
            "columns": _columns(self.columns),
            "texts": _texts(self.texts),
            "rotate": _rotate(self.rotate),
            "run": _run(self.run),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)


@overload
def read_journal(
    folder: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    filters: Any = None,
    batches: Literal[False] = False,
) -> pa.Table: ...


@overload
def read_journal(
    folder: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    filters: Any = None,
    batches: Literal[True],
) -> pa.RecordBatchReader: ...


def read_journal(
    folder: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    filters: Any = None,
    batches: bool = False,
) -> pa.Table | pa.RecordBatchReader:
    """All rows of a journal, those of a run that is still writing too.

    Streams of runs that were killed become Parquet files first. Files that can't be read (damaged,
    from another program or a newer version) are left out, with a `GuerdonWarning` that names them.
    Needs ``pip install 'pyarrow>=17'``.

    Args:
        folder: The journal's folder, or one of its files.
        columns: Names of columns to read; all by default. Others are not read from the disk.
        filters: Which rows, as for ``pyarrow.parquet.read_table``: ``[("status", "!=", "ok")]`` or
            an expression. Row groups of files that hold none of them are passed over.
        batches: For a journal that is larger than memory: record batches, read one after another as
            they are asked for, in place of one table.

    Returns:
        One row per sample and function (docs/journal.md has the columns): a ``pyarrow.Table``, or
        with ``batches=True`` a ``pyarrow.RecordBatchReader``, over which to iterate. Texts and
        chosen columns are strings; ``.schema.metadata[b"guerdon.kinds"]`` is a JSON object that
        says which of them are ``"json"``.

    Raises:
        FileNotFoundError: There is no such folder.
        ImportError: pyarrow is missing.
        DataError: No file in it can be read, or the journal lacks a column that `columns` or
            `filters` names.
        TypeError: `columns` is not a list of names, or `folder` is not a path.

    Examples:
        >>> import tempfile
        >>> from guerdon import Dispatcher, read_journal, reward
        >>> half = reward(lambda text: 0.5, name="half")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Dispatcher([half], journal=folder) as dispatcher:
        ...         result = dispatcher.score(completions=["a", "b"])
        ...     rows = read_journal(folder, columns=["sample", "function", "value", "status"])
        ...     rows.sort_by("sample").to_pylist()[1]
        ...     sum(rows.num_rows for rows in read_journal(folder, columns=["value"], batches=True))
        {'sample': 1, 'function': 'half', 'value': 0.5, 'status': 'ok'}
        2
    """
    from guerdon._insight.journal.reading import read

    reader = read(folder, columns, filters)
    return reader if batches else reader.read_all().unify_dictionaries()


def _folder(folder: object) -> str:
    try:
        given = os.fsdecode(os.fspath(folder)) if isinstance(folder, (str, os.PathLike)) else ""
    except TypeError:  # its path is not one
        given = ""
    if not given:
        raise RegistrationError(f"journal={folder!r}: expected the path of a folder.")
    path = os.path.abspath(os.path.expanduser(given))
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)  # it holds prompts and what judges said
    except (OSError, ValueError) as error:  # a NUL, a letter that no file system has
        reason = (isinstance(error, OSError) and error.strerror) or error
        if os.path.isfile(path):
            raise RegistrationError(
                f"journal={path!r} is a file: give a folder, in which the journal writes its files."
            ) from None
        raise RegistrationError(f"journal={path!r}: the folder can't be made ({reason}).") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise RegistrationError(f"journal={path!r}: this user can't write into the folder.")
    return path


def _columns(columns: object) -> tuple[str, ...]:
    expected = "a list of names of dataset columns"
    if isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable):
        raise RegistrationError(f"columns={columns!r} of a journal: expected {expected}.")
    names = tuple(columns)
    for name in names:
        if not isinstance(name, str) or not name:
            raise RegistrationError(f"columns= of a journal has {name!r}: expected {expected}.")
        if name in ("prompt", "prompts", "completion", "completions"):
            raise RegistrationError(
                f"columns= of a journal has {name!r}: prompts and completions come with texts=True."
            )
    if len(set(names)) != len(names):
        raise RegistrationError(f"columns={list(names)!r} of a journal: a name is there twice.")
    return names


def _texts(texts: object) -> bool:
    if not isinstance(texts, bool):
        raise RegistrationError(f"texts={texts!r} of a journal: expected True or False.")
    return texts


def _rotate(rotate: object) -> int:
    found = as_bytes(rotate)
    if found is None or not _LEAST_PART <= found < 2**62:
        raise RegistrationError(f"rotate={rotate!r} of a journal: expected {EXPECTED_BYTES}, at least 64KiB.")
    return found


def _run(run: object) -> str:
    if run is None:
        return launch_id()
    if not isinstance(run, str) or not run.strip() or not run.isprintable() or len(run) > _LONGEST_RUN:
        raise RegistrationError(
            f"run={run!r} of a journal: expected a name of one line, at most {_LONGEST_RUN} characters."
        )
    return run
