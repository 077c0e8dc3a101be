"""Checks of the whole suite that differ where Ray runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ray keeps its log files open in the process that drove it, and its folder: so here only
    test_reward_loop.py looks, for processes. Temporary files go where pytest removes them.
    """
    patch = pytest.MonkeyPatch()
    patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("t")))  # short: Ray makes sockets below
    patch.setattr(tempfile, "tempdir", None)
    yield
    patch.undo()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model; this import of verl, without its warnings, comes before all others."""
    from tests.verl.verl_setup import make_model

    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def tokenizer(model: Path) -> Any:
    from verl.utils import hf_tokenizer

    return hf_tokenizer(str(model))
