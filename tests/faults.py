"""Rows of tables of faults."""

from __future__ import annotations

import pytest


def fault(what: str, *, sees: str, of: tuple[object, ...], id: str | None = None) -> object:
    """A case that injects a fault; `scripts/faults-table` reads its two texts.

    Args:
        what: What goes wrong.
        sees: What the user sees.
        of: The values of the case's parameters.
        id: Its name among the cases.
    """
    return pytest.param(*of, marks=pytest.mark.fault(what, sees=sees), id=id)
