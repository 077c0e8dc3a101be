"""Tests for reward functions: assertions for one's own pytest files, which run the checks of
`guerdon profile`.

>>> from guerdon import reward
>>> from guerdon.testing import assert_reference_scores, assert_rejects
>>> @reward
... def exact(completion: str, answer: str) -> float:
...     return float(bool(answer) and completion.strip() == answer)
>>> rows = [{"prompt": f"{n} + 5 =", "answer": str(n + 5)} for n in range(10, 18)]
>>> assert_reference_scores(exact, rows)
>>> assert_rejects(exact, rows)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guerdon._system.lazy_imports import names as _names

if TYPE_CHECKING:
    from guerdon.testing.assertions import (
        assert_bounded,
        assert_deterministic,
        assert_reference_scores,
        assert_rejects,
        assert_row_independent,
    )

__all__ = [
    "assert_bounded",
    "assert_deterministic",
    "assert_reference_scores",
    "assert_rejects",
    "assert_row_independent",
]

_HOMES: Final = dict.fromkeys(__all__, "assertions")

# The plugin of this folder is loaded by every run of pytest: nothing else may be.
__getattr__, __dir__ = _names(globals(), _HOMES)
