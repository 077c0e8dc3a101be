"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "python" / "guerdon"
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)
# Their frameworks want tensors.
TORCH = ("guerdon.integrations.nemo_rl", "guerdon.integrations.openrlhf")


@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module: str) -> None:
    if module in TORCH:
        pytest.importorskip("torch")
    loaded = importlib.import_module(module)
    results = doctest.testmod(loaded, extraglobs={"__name__": "__main__"}, raise_on_error=False)
    assert results.attempted > 0
    assert results.failed == 0
