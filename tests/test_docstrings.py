"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib

import pytest

TORCH = ("guerdon.integrations.nemo_rl", "guerdon.integrations.openrlhf")
"""Modules whose frameworks want tensors."""


@pytest.mark.parametrize(
    "module",
    [
        "guerdon",
        "guerdon.dispatcher",
        "guerdon.dispatcher.scoring",
        "guerdon.integrations.areal",
        "guerdon.integrations.nemo_rl",
        "guerdon.integrations.openrlhf",
        "guerdon.integrations.otel",
        "guerdon.integrations.skyrl",
        "guerdon.integrations.slime",
        "guerdon.integrations.verifiers",
        "guerdon.integrations.trl.async_grpo.vllm_calls",
        "guerdon.integrations.trl.pipeline.options",
        "guerdon.integrations.trl.tool_calls.tools",
        "guerdon.integrations.trl.tool_calls.environments",
        "guerdon.judges",
        "guerdon.limits",
        "guerdon.parse",
        "guerdon._insight.diagnostics.report",
        "guerdon._replay",
        "guerdon._replay.result",
        "guerdon.results",
        "guerdon.rewards",
        "guerdon.rewards.answers",
        "guerdon.rewards.formats",
        "guerdon.rewards.instructions",
        "guerdon.rewards.lengths",
        "guerdon.rewards.mathematics",
        "guerdon.rewards.overlap",
        "guerdon.rewards.schemas",
        "guerdon.functions",
        "guerdon._functions.stateful",
        "guerdon.results.status",
        "guerdon._batch.pending",
        "guerdon.profile",
        "guerdon.profile.finding",
        "guerdon.profile.subject",
        "guerdon.testing",
        "guerdon.testing.assertions",
        "guerdon.testing.strategies",
    ],
)
def test_examples_run(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if module in TORCH:
        pytest.importorskip("torch")
    loaded = importlib.import_module(module)
    results = doctest.testmod(loaded, extraglobs={"__name__": "__main__"}, raise_on_error=False)
    assert results.attempted > 0
    assert results.failed == 0
