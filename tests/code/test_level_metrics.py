"""The level of isolation that held, where a run shows itself: metrics, log, results."""

from __future__ import annotations

import logging

import pytest

from guerdon import Dispatcher, SandboxFusion, code_reward, reward
from tests.code.programs import CASES, INCREMENT, block
from tests.monitor import reading

NAME = "guerdon_code_isolation_info"


def test_the_level_is_in_metrics_log_and_result(caplog: pytest.LogCaptureFixture) -> None:
    strict = code_reward(timeout=5.0)
    loose = code_reward(name="loose", isolation="none")
    far = code_reward(name="far", remote=SandboxFusion("http://127.0.0.1:9"), run_if={"code": "< 0"})
    length = reward(lambda text: float(len(text)), name="length", lane="thread")
    with (
        caplog.at_level(logging.INFO, "guerdon"),
        Dispatcher([strict, loose, far, length], workers=1, metrics_port=0) as dispatcher,
    ):
        for _ in range(2):
            result = dispatcher.score(completions=[block(INCREMENT)], cases=[CASES])
        found = reading.series(reading.families(reading.text(dispatcher)))
    levels = {labels["function"]: labels for name, given in found if name == NAME for labels in [dict(given)]}
    assert set(levels) == {"code", "loose", "far"}
    assert all(number == 1 for (name, _), number in found.items() if name == NAME)
    assert levels["code"]["level"] == strict.level.name == "strict"
    assert levels["code"]["layers"].split(",") == [layer for layer, _ in strict.level.held]
    assert [one for one in levels["code"]["missing"].split(",") if one] == [layer for layer, _ in strict.level.missing]
    assert (levels["loose"]["level"], levels["loose"]["layers"]) == ("none", "")
    assert levels["far"]["level"] == "remote"
    assert result.extra["code/isolation"] == ["strict"]
    assert result.extra["loose/isolation"] == ["none"]
    logged = [record.getMessage() for record in caplog.records if "isolation of programs" in record.getMessage()]
    assert logged == [f"{one.name}: isolation of programs: {one.level}" for one in (strict, loose, far)], "once a run"
    assert f"code: isolation of programs: strict: {strict.level.held[0][0]}" in logged[0]
