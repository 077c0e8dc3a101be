"""ms-swift's way to score, with the package itself: `make test-trl-versions` runs this in an
environment with ms-swift and the TRL that it takes."""

from __future__ import annotations

import warnings
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("swift.rl_core")

import torch

from guerdon import Dispatcher, GuerdonWarning
from tests.compatibility.recorder import Note
from tests.trl_versions import rewards

pytestmark = pytest.mark.filterwarnings("default")  # what other packages warn of

TEXTS = ["a1", "22", "b", "333"]


@pytest.fixture(autouse=True)
def no_cache_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path))


def scored(functions: list[Any], texts: list[str]) -> Any:
    """The rewards that ms-swift's trainers get for one prompt with four completions."""
    from swift.rl_core.data import GRPOSample
    from swift.rl_core.grpo_algorithm import compute_rewards_per_func

    samples = [
        GRPOSample(
            messages=[{"role": "user", "content": "p"}, {"role": "assistant", "content": text}], extra={"answer": "a"}
        )
        for text in texts
    ]
    state = SimpleNamespace(global_step=1)
    return compute_rewards_per_func(samples, functions, [None] * len(functions), torch.device("cpu"), state)


def test_a_plugin_is_a_column(compatibility: Note, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered in ``orms`` as a plugin file does, called with a lone list of completions, and
    named after its function. A failed sample is summed to 0, which is warned of."""
    from swift.rewards import orms
    from swift.rl_core.advantage import compute_advantages

    row = f"ms-swift {metadata.version('ms-swift')}"
    compatibility("built-on-trl", row, "`reward_funcs`", "works, warns: a plugin in `orms`", ("trl", "transformers"))
    with Dispatcher([rewards.digits, rewards.unlucky], workers=1, max_failure_rate=1) as dispatcher:
        for name, column in zip(dispatcher.names, dispatcher.reward_funcs, strict=True):
            monkeypatch.setitem(orms, name, lambda args=None, column=column: column)
        functions = [orms[name](args=SimpleNamespace()) for name in ("digits", "unlucky")]
        assert [one.__class__.__name__ for one in functions] == ["digits", "unlucky"]
        good = [text for text in TEXTS if not rewards.fails(text)]
        with warnings.catch_warnings():
            warnings.simplefilter("error", GuerdonWarning)
            found = scored(functions, good)
        assert found[:, 0].tolist() == [float(sum(map(str.isdigit, text))) for text in good]
        bad = next(text for text in map(str, range(100)) if rewards.fails(text))
        with pytest.warns(GuerdonWarning, match="is not known to leave out samples that have no reward"):
            found = scored(functions, [*good[:1] * 3, bad])
        assert found[3].isnan().all()
        _, totals = compute_advantages(found, torch.ones(2), 4)
        assert totals[3] == 0.0  # as the warning says
