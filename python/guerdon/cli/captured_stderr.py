"""Output of workers while a command runs, kept from the terminal: its beginning is shown at the
end, with escapes for what would act on the terminal.

The descriptor is replaced, as workers' output does not go through `sys.stderr`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Final, TextIO

from guerdon._system.safe_text import printable

__all__ = ["captured_stderr"]

_LINES: Final = 10
_COLUMNS: Final = 200


@contextlib.contextmanager
def captured_stderr() -> Iterator[TextIO]:
    """Gives the real stderr meanwhile."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with (
            tempfile.TemporaryFile() as captured,
            open(os.dup(kept), "w", encoding=sys.stderr.encoding, errors="backslashreplace") as real,
        ):
            os.dup2(captured.fileno(), 2)
            try:
                yield real if _is_descriptor(sys.stderr) else sys.stderr
            finally:
                sys.stderr.flush()
                os.dup2(kept, 2)
                captured.seek(0)
                for _, line in zip(range(_LINES), captured, strict=False):
                    text = line.decode("utf-8", "replace").rstrip("\n")[:_COLUMNS]
                    print(printable(text, keep="\t"), file=sys.stderr)
                more = sum(chunk.count(b"\n") for chunk in iter(lambda: captured.read(1 << 20), b""))
                if more:
                    print(f"[guerdon] {more} more lines that functions printed are left out", file=sys.stderr)
    finally:
        os.close(kept)


def _is_descriptor(stream: TextIO) -> bool:
    """Returns whether it writes to descriptor 2, rather than to what replaced it in this
    process."""
    try:
        return stream.fileno() == 2
    except (OSError, ValueError):
        return False
