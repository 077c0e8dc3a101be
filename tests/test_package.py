"""What `import guerdon` gives, and what it doesn't load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import guerdon

PUBLIC = {
    "ClosedError",
    "DataError",
    "Dispatcher",
    "Dump",
    "Failure",
    "Group",
    "GuerdonError",
    "GuerdonWarning",
    "InFlight",
    "Limit",
    "MainGuardError",
    "Recycle",
    "RegistrationError",
    "RetryAfter",
    "StatefulReward",
    "RewardBatch",
    "RewardFailureError",
    "RewardFunction",
    "SerializationError",
    "SnapshotError",
    "Status",
    "OpenBatch",
    "PendingBatch",
    "ToolError",
    "__version__",
    "group_reward",
    "judge",
    "parse",
    "http_reward",
    "reward",
}


def test_the_public_names_are_these() -> None:
    assert set(guerdon.__all__) == PUBLIC
    assert set(dir(guerdon)) >= PUBLIC
    for name in PUBLIC:
        assert getattr(guerdon, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rewrad'"):
        guerdon.rewrad  # noqa: B018


@pytest.mark.parametrize("statement", ["import guerdon", "from guerdon import Dispatcher, Limit, reward, group_reward"])
def test_the_import_loads_nothing_heavy(statement: str) -> None:
    heavy = ("numpy", "asyncio", "cloudpickle", "torch", "transformers", "trl")
    program = f"import sys; {statement}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
