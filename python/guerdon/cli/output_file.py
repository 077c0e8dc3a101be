"""Files that commands write: refused before the work where they can't be, and written as a whole.

A reader of such a file sees the old one or the new one.
"""

from __future__ import annotations

import os
import tempfile

from guerdon._system.output_path import why_no_file
from guerdon.profile.exit_codes import UsageError

__all__ = ["check_output_file", "write_page"]


def check_output_file(option: str, name: str) -> None:
    """Refuse a file that can't be written.

    Args:
        option: That names it, as in ``--html``.

    Raises:
        UsageError: It is a folder, a device or a pipe, or this user can't write it.
    """
    why = why_no_file(name)
    if why is not None:
        raise UsageError(f"{option} {name!r} can't be written: {why}.")


def write_page(option: str, name: str, page: str) -> None:
    """Write the page; what has no UTF-8 is escaped.

    Raises:
        UsageError: The file can't be written.
    """
    check_output_file(option, name)
    path = os.path.realpath(name)  # what a link leads to is replaced, and not the link
    folder, own = os.path.split(path)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{own[:200]}.", delete=False) as file:
            try:
                file.write(page.encode("utf-8", "backslashreplace"))
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(file.name, 0o666 & ~mask)  # as any other file that is written here
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise UsageError(f"{option} {name!r} can't be written: {error.strerror}.") from None
