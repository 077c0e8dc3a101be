"""`import guerdon` loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

import guerdon


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rewrad'"):
        guerdon.rewrad  # noqa: B018


@pytest.mark.parametrize("statement", ["import guerdon", "from guerdon import Dispatcher, Limit, reward, group_reward"])
def test_the_import_loads_nothing_heavy(statement: str) -> None:
    heavy = ("numpy", "asyncio", "cloudpickle", "pandas", "torch", "transformers", "trl")
    program = f"import sys; {statement}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=250)
    assert done.stdout.strip() == "[]"
