"""Tool calls of the synchronous trainer, samples concurrently."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import trl

from guerdon.integrations import trl as ours
from guerdon.integrations.trl import tools
from tests.integrations.trl.line_game import call, make_player
from tests.integrations.trl.tool_calls import tool_functions

pytestmark = [
    pytest.mark.filterwarnings("default", "error::guerdon.GuerdonWarning"),
    pytest.mark.usefixtures("trainers"),
]


class Script:
    """Says in each turn what `turns` has for each sample that is asked, instead of generating."""

    _tokenizer: Any
    seen: Any
    turns: list[dict[int, str]]

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, *rest: Any) -> Any:
        self.seen = completions
        return super()._calculate_rewards(inputs, prompts, completions, *rest)  # type: ignore[misc]

    def _generate_single_turn(self, prompt_ids: Any, *rest: Any, **options: Any) -> Any:
        replies = self.turns.pop(0)
        assert len(replies) == len(prompt_ids)
        return [
            self._tokenizer(replies[sample])["input_ids"] + [self._tokenizer.eos_token_id] for sample in replies
        ], None


class ScriptedTrainer(Script, trl.GRPOTrainer):
    """TRL's own trainer."""


class Ours(Script, ours.GRPOTrainer):
    """Ours."""


def run(
    kind: type[Any], folder: Path, given: Any, turns: list[dict[int, str]], **options: Any
) -> tuple[Any, list[Any]]:
    """The trainer after one batch of a script, and for each sample (name, answer) of its tools."""
    options = {"max_completion_length": 900, "max_tool_calling_iterations": 3, **options}
    trainer = make_player(
        kind, [tool_functions.nothing], folder, calls=(), max_steps=1, more={"tools": given}, **options
    )
    trainer.turns = list(turns)
    trainer.train()
    return trainer, [
        [(m["name"], m["content"]) for m in completion if m["role"] == "tool"] for completion in trainer.seen
    ]


def everybody(text: str) -> dict[int, str]:
    """Eight samples that say the same, with their numbers in the place of #."""
    return {sample: text.replace("#", str(sample)) for sample in range(8)}


class ConcurrencyCounter:
    """Notes when its calls begin and end, and on which thread."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.threads: set[threading.Thread] = set()

    def wait(self, label: str) -> str:
        """Waits a little.

        Args:
            label: What comes back.
        """
        self.threads.add(threading.current_thread())
        self.events.append(("begin", label))
        time.sleep(0.3)
        self.events.append(("end", label))
        return label

    async def rest(self, label: str) -> str:
        """Waits a little.

        Args:
            label: What comes back.
        """
        self.events.append(("begin", label))
        await asyncio.sleep(0.3)
        self.events.append(("end", label))
        return label

    def of(self, sample: int) -> list[tuple[str, str]]:
        return [event for event in self.events if event[1].startswith(f"{sample}")]

    def together(self) -> int:
        """The most samples whose first sync call was under way at once."""
        now = most = 0
        for kind, label in self.events:
            if label.endswith("1"):
                now += 1 if kind == "begin" else -1
                most = max(most, now)
        return most


# --- order of calls


def test_samples_call_their_tools_concurrently_sync_ones_in_order_then_async_ones_together(tmp_path: Path) -> None:
    """The calls of eight samples at once; results as they were called."""
    counter = ConcurrencyCounter()
    mixed = "".join(call(name, label=f"#{k}") for k, name in enumerate(("rest", "wait", "rest", "wait")))
    with tools([counter.wait, counter.rest]) as routed:
        trainer, answers = run(Ours, tmp_path, routed, [everybody(mixed), everybody("done")])
    for sample in range(8):
        assert answers[sample] == [(("rest", "wait")[k % 2], f"{sample}{k}") for k in range(4)]
        events = counter.of(sample)
        assert events[:4] == [(kind, f"{sample}{k}") for k in (1, 3) for kind in ("begin", "end")]
        assert {kind for kind, _ in events[4:6]} == {"begin"}
    assert counter.together() >= 4
    entry = trainer.state.log_history[0]
    assert (entry["tools/call_frequency"], entry["tools/failure_frequency"]) == (4.0, 0.0)
    assert entry["guerdon/tools/wait/failed_frac"] == 0.0
    assert entry["guerdon/tools/wait/run_mean_s"] >= 0.3


# --- failures


def test_failures_and_time_outs_go_back_to_the_model_and_are_counted(tmp_path: Path) -> None:
    first = everybody(call("nap", seconds=0.0, label="fine"))
    first[1] = call("fail", text="no such page")
    first[2] = call("nap", seconds=12.0, label="late")
    first[3] = call("unheard_of", text="x")
    first[4] = call("nap", lenght=3)
    with tools([tool_functions.nap, tool_functions.fail], timeout=3.0, lane="thread") as routed:
        trainer, answers = run(Ours, tmp_path, routed, [first, everybody("done")])
    assert answers[0][0][1].startswith("fine")
    assert answers[1] == [("fail", "{'error': 'no such page'}")]
    assert answers[2] == [("nap", "{'error': 'nap took longer than 3 s'}")]
    assert answers[3] == [("unheard_of", "{'error': 'Tool unheard_of not found.'}")]
    assert "unexpected keyword argument 'lenght'" in answers[4][0][1]
    entry = trainer.state.log_history[0]
    assert entry["tools/failure_frequency"] == 0.5
    assert entry["guerdon/tools/nap/timeout_frac"] == pytest.approx(1 / 6)
    assert entry["guerdon/tools/nap/failed_frac"] == pytest.approx(2 / 6)
    assert entry["guerdon/tools/fail/failed_frac"] == 1.0


# --- results reach their samples


class Page:
    """Plain tools, not routed."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.threads: set[threading.Thread] = set()

    def look_up(self, word: str) -> str:
        """Looks up.

        Args:
            word: A word.
        """
        self.threads.add(threading.current_thread())
        self.read.append(word)
        return f"{word} is a word"

    async def ask(self, word: str) -> str:
        """Asks.

        Args:
            word: A word.
        """
        self.read.append(word)
        return f"{word}?"


@pytest.mark.parametrize("seed", range(2))
def test_random_scripts_get_the_answers_that_trl_gives(seed: int, tmp_path: Path) -> None:
    """Samples that stop at different turns, mixed kinds of tools, names that there are not: each
    call is run as often as in TRL, and each sample gets its own answers.
    """
    draw = random.Random(seed)
    names = ["write", "look_up", "ask", "read_all", "nobody"]
    turns: list[dict[int, str]] = []
    playing = list(range(8))
    while playing:
        replies, still = {}, []
        for sample in playing:
            count = draw.choice([0, 1, 2, 3]) if len(turns) < 3 else 0
            picked = [draw.choice(names) for _ in range(count)]
            replies[sample] = (
                "".join(_one(name, f"{len(turns)}.{sample}.{k}") for k, name in enumerate(picked)) or "done"
            )
            if count:
                still.append(sample)
        turns.append(replies)
        playing = still

    def read_all() -> str:
        """Reads."""
        return "nothing"

    results = []
    for kind in (ScriptedTrainer, Ours):
        pad, page = tool_functions.Pad(), Page()
        routed = tools([pad.write, read_all])
        given = [*routed, page.look_up, page.ask] if kind is Ours else [pad.write, read_all, page.look_up, page.ask]
        trainer, answers = run(kind, tmp_path / kind.__name__, given, turns)
        routed.close()
        counted = {
            key: trainer.state.log_history[0][key] for key in ("tools/call_frequency", "tools/failure_frequency")
        }
        words = [[(name, text if name != "write" else "") for name, text in sample] for sample in answers]
        results.append((Counter(pad.lines), Counter(page.read), [Counter(sample) for sample in words], counted))
        if kind is Ours:
            assert page.threads <= {threading.main_thread()}
    assert results[0] == results[1]


def _one(name: str, label: str) -> str:
    return call(name) if name == "read_all" else call(name, **{"line" if name == "write" else "word": label})


def test_a_sample_whose_results_are_too_long_leaves_the_loop_and_calls_nothing_twice(tmp_path: Path) -> None:
    pad = tool_functions.Pad()

    def grow(label: str) -> str:
        """Gives much.

        Args:
            label: Which.
        """
        pad.write(label)
        return "word " * (2000 if label.startswith("3") else 1)

    first = everybody(call("grow", label="#a"))
    second = {sample: text for sample, text in everybody(call("grow", label="#b")).items() if sample != 3}
    third = dict.fromkeys(second, "done")
    with tools([grow]) as routed:
        _, answers = run(Ours, tmp_path, routed, [first, second, third])
    assert sorted(pad.lines) == sorted([f"{s}a" for s in range(8)] + [f"{s}b" for s in range(8) if s != 3])
    assert answers[3] == []
    assert [len(sample) for sample in answers] == [2, 2, 2, 0, 2, 2, 2, 2]


# --- the end of a batch


def test_an_exception_in_the_middle_leaves_nothing_running(tmp_path: Path) -> None:
    counter = ConcurrencyCounter()

    def stop(label: str) -> str:
        """Stops.

        Args:
            label: Which.
        """
        raise KeyboardInterrupt

    text = call("stop", label="#") + call("rest", label="#")
    with tools([counter.rest]) as routed, pytest.raises(KeyboardInterrupt):
        run(Ours, tmp_path, [*routed, stop], [everybody(text), everybody("done")])
    assert not [thread for thread in threading.enumerate() if thread.name == "guerdon tool turns"]
