"""Whether functions can run on a machine: the process that an agent asks before any call."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from guerdon import Dispatcher, RegistrationError, StatefulReward, reward
from guerdon._lanes.remote.agent import NodeAgent
from guerdon._lanes.remote.engine_setup import pack
from guerdon._lanes.remote.ray.functions_check import check_functions


class Loads(StatefulReward):
    def __init__(self, path: str) -> None:
        self.path = path

    def setup(self) -> None:
        if self.path == "exit":
            os._exit(3)
        if self.path == "hang":
            while True:
                pass
        self.text = Path(self.path).read_text()

    def score(self, completion: str) -> float:
        return float(completion in self.text)


def _check(*functions: object, timeout: float = 60.0) -> None:
    dispatcher = Dispatcher(functions)
    functions_sent = dispatcher._engine.worker_setup().functions
    agent = NodeAgent(pack(dispatcher._specs, {}, None, functions_sent).data, workers=1)
    check_functions(agent, timeout)
    agent.close()


def test_functions_that_can_run_are_let_through(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("a b c")
    _check(reward(Loads(str(tmp_path / "model")), name="loads"), reward(lambda text: float(len(text)), name="length"))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/models/missing.bin", r"'loads' setup\(\) failed: FileNotFoundError: .*/models/missing.bin"),
        ("exit", "'loads' ended the process that loaded it"),
        ("hang", "'loads' was not ready within 3 s"),
    ],
)
def test_one_that_can_not_is_refused_with_its_reason(path: str, expected: str) -> None:
    timeout = 3.0 if path == "hang" else 60.0
    with pytest.raises(RegistrationError, match=expected):
        _check(reward(Loads(path), name="loads"), timeout=timeout)
