"""Reward services whose servers fail now and then: their faults are not the function's."""

from __future__ import annotations

from typing import Any

from guerdon import http_reward
from guerdon.profile.checks.stability import CHECKS
from guerdon.profile.finding import Finding
from guerdon.profile.subject import Subject
from tests.http.server import serving

ROWS = [{"prompt": "p", "completion": f"{row} words"} for row in range(8)]


def found(answer: Any) -> list[Finding]:
    with serving(answer) as server, Subject(http_reward(server.url, retries=0, name="service"), ROWS) as subject:
        return [finding for check in CHECKS for finding in check.run(subject)]


def test_random_faults_of_a_service_are_its_servers() -> None:
    asked = []

    def answer(path: str, body: dict[str, Any]) -> Any:
        asked.append(body["completion"])
        if body["completion"] == "3 words" and asked.count("3 words") == 2:
            return 503, {"error": "restarting"}
        return {"score": float(body["completion"][0])}

    (finding,) = found(answer)
    assert (finding.check, finding.severity) == ("fails", "warning")
    assert "failed on 1 of 8 samples in one of two runs" in finding.message
    assert [example.row for example in finding.examples] == [3]


def test_a_service_that_changes_its_mind_is_found() -> None:
    asked = []

    def answer(path: str, body: dict[str, Any]) -> Any:
        asked.append(body["completion"])
        return {"score": float(asked.count(body["completion"]))}

    assert [(finding.check, finding.severity) for finding in found(answer)] == [("repeat", "error")]
