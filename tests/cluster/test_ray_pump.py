"""Messages between a link and an actor, on a Ray of this process."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from guerdon._lanes.remote.ray import pump
from guerdon._lanes.remote.ray.pump import Pump
from tests.clock import eventually
from tests.cluster.fake_ray import ActorDiedError, FakeActor, FakeLink, FakeRay, installed_as


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    return installed_as(monkeypatch, FakeRay())


class Session:
    def __init__(self, ray: FakeRay) -> None:
        self.actor = FakeActor(ray, "a-id")
        self.link = FakeLink("a")
        self.pump = Pump(self.actor, 1, self.link, lambda: self.actor.kill(no_restart=False))  # type: ignore[arg-type]
        self.thread = threading.Thread(target=self.pump.run)
        self.thread.start()

    def end(self) -> None:
        self.link.lost("the test is over")
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture
def session(ray: FakeRay) -> Iterator[Session]:
    made = Session(ray)
    yield made
    made.end()


def test_messages_go_both_ways_in_order(session: Session) -> None:
    sizes = [1, 100 << 10, 5, (1 << 20) + 7]
    messages = [bytes([index]) * size for index, size in enumerate(sizes)]
    for message in messages:
        session.link.outgoing.put(message)
        session.actor.messages.put(message)
    eventually(lambda: len(session.link.received) == 4 and len(session.actor.delivered) == 4)
    assert session.link.received == messages
    assert [b"".join(pieces) for pieces in session.actor.delivered] == messages
    # What is larger would go through the object store.
    assert all(len(piece) < 100 << 10 for pieces in session.actor.delivered for piece in pieces)


def test_nothing_is_sent_while_there_is_nothing_to_do(session: Session) -> None:
    time.sleep(0.5)
    assert session.actor.delivered == []
    assert len(session.link.patience) == 1
    assert session.link.patience[0] >= 10


def test_an_idle_agent_hears_of_the_driver(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "_IDLE_S", 0.02)
    session = Session(ray)
    try:
        eventually(lambda: len(session.actor.delivered) > 3)
        assert set(session.actor.delivered) == {()}
        assert not session.link.closed
    finally:
        session.end()


def _late(session: Session, answers: bool) -> list[Future[object]]:
    """Two messages are on their way, and their answers do not come."""
    waiting: list[Future[object]] = []
    both = threading.Event()

    def answer() -> Future[object]:
        both.wait(60)
        waiting.append(Future())
        return waiting[-1]

    session.actor.answer = answer
    for number in range(2):
        session.link.outgoing.put(b"%d" % number)
    both.set()
    eventually(lambda: len(waiting) == 2)
    time.sleep(0.2)
    for future in waiting if answers else ():
        future.set_result(None)
    return waiting


def test_a_driver_that_was_stopped_keeps_its_agent(
    ray: FakeRay, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock says that the agent was silent, and its answer is there at the second look."""
    monkeypatch.setattr(pump, "SILENCE_S", 0.05)
    _late(session, answers=True)
    time.sleep(0.1)
    assert not session.link.closed


def test_an_agent_that_does_not_answer_is_lost(ray: FakeRay, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "SILENCE_S", 0.05)
    monkeypatch.setattr(pump, "_LOOK_AGAIN_S", 0.05)
    _late(session, answers=False)
    eventually(lambda: session.link.closed)
    assert session.link.reason == "its agent does not answer (GetTimeoutError)"


@pytest.mark.parametrize("answers", [True, False])
def test_only_an_agent_that_is_stopped_is_killed_with_its_session(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    if not answers:
        monkeypatch.setattr(pump, "_END_S", 0.05)
    session = Session(ray)
    session.actor.ends_stream = answers
    session.end()
    assert session.actor.restarts == (0 if answers else 1)


def test_a_session_that_ends_is_lost_with_its_reason(ray: FakeRay) -> None:
    death = ActorDiedError("The actor is dead because its worker process has died")
    for message, reason in [
        (death, r"its agent died \(ActorDiedError(?s:.*)"),
        ("message 7 came in place of 6", "message 7 came in place of 6"),
    ]:
        session = Session(ray)
        session.actor.messages.put(message)
        session.thread.join(60)
        assert session.link.reason is not None
        assert re.fullmatch(reason, session.link.reason)
        assert session.actor.restarts == 0
