"""A forked child closes its copies of the sockets that its parent serves."""

from __future__ import annotations

import functools
import os

__all__ = ["close_in_children"]


@functools.cache
def close_in_children() -> None:
    """Closes them from now on whenever this process is forked."""
    from guerdon import _native  # not by `import guerdon`

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=_native.hold_sockets,
            after_in_parent=_native.release_sockets,
            after_in_child=_native.close_inherited_sockets,
        )
