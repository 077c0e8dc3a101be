"""`import guerdon` loads nothing heavy."""

from __future__ import annotations

import pytest

import guerdon
from tests.processes import run_python


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rewrad'"):
        guerdon.rewrad  # noqa: B018


@pytest.mark.parametrize("statement", ["import guerdon", "from guerdon import Dispatcher, Limit, reward, group_reward"])
def test_the_import_loads_nothing_heavy(statement: str) -> None:
    heavy = ("numpy", "asyncio", "cloudpickle", "pandas", "torch", "transformers", "trl")
    program = f"import sys; {statement}; print([name for name in {heavy} if name in sys.modules])"
    assert run_python(program).stdout.strip() == "[]"
