"""Cost of a turn of tool calls in TRL's trainer and in ours: four samples, two sync calls of 0.2 s
each.

    python -m pytest benches/python/bench_tools.py --benchmark-only

Timed is the trainer's own ``_tool_call_loop``: the calls, and the handling of their results. Ours
runs the tool in worker processes (``tools([...])``), which are up before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import trl

from guerdon.integrations import trl as guerdon_trl
from guerdon.integrations.trl import tools
from tests.integrations.trl.line_game import call, make_player
from tests.integrations.trl.tiny_trainer import end_loops
from tests.integrations.trl.tool_calls import tool_functions

pytestmark = pytest.mark.filterwarnings("default")  # what the trainers' own libraries warn about

SAMPLES = 4


class _Quiet:
    """Generates nothing after its tools have answered."""

    _tokenizer: Any

    def _generate_single_turn(self, prompt_ids: Any, *rest: Any, **options: Any) -> Any:
        return [self._tokenizer("done")["input_ids"] for _ in prompt_ids], None


class Plain(_Quiet, trl.GRPOTrainer):
    """TRL's."""


class Ours(_Quiet, guerdon_trl.GRPOTrainer):
    """Ours."""


def turn(trainer: Any, given: list[Callable[..., Any]]) -> Callable[[], Any]:
    """Runs one turn; gives the samples' messages."""
    calls = [{"type": "function", "function": {"name": "nap", "arguments": {"seconds": 0.2}}}] * 2
    ids_of_calls = trainer._tokenizer(call("nap", seconds=0.2) * 2)["input_ids"]
    trainer._sync_tool_dicts = [{tool.__name__: tool for tool in given} for _ in range(SAMPLES)]
    trainer._async_tool_dicts = [{} for _ in range(SAMPLES)]

    def run() -> Any:
        prompts = [[{"role": "user", "content": "go"}] for _ in range(SAMPLES)]
        completions = [[{"role": "assistant", "content": "", "tool_calls": copy.deepcopy(calls)}] for _ in prompts]
        ids = [[1, 2, 3] for _ in prompts]
        trainer._tool_call_loop(prompts, ids, [list(ids_of_calls) for _ in prompts], completions, None, None, {})
        return completions

    return run


@pytest.mark.parametrize("kind", ["trl", "guerdon"])
def test_two_calls_a_sample(kind: str, benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    routed = tools([tool_functions.nap])
    given: list[Callable[..., Any]] = [tool_functions.nap] if kind == "trl" else list(routed)
    trainer = make_player(
        Plain if kind == "trl" else Ours, [tool_functions.nothing], tmp_path, calls=(), more={"tools": given}
    )
    try:
        completions = benchmark.pedantic(turn(trainer, given), rounds=5, warmup_rounds=1)
        assert [len([m for m in one if m["role"] == "tool"]) for one in completions] == [2] * SAMPLES
    finally:
        routed.close()
        end_loops()
