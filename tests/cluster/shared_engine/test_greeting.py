"""The first record of a connection to a shared engine."""

from __future__ import annotations

import os
import socket
import struct
import sys

import pytest

from guerdon._lanes.remote.shared_engine import greeting
from guerdon._lanes.remote.shared_engine.meeting import JoinError

NOBODY = 2**32 - 2


class OtherUser:
    """A connection whose other end is a process of a user with a high number."""

    def __init__(self, user: int) -> None:
        self._user = user

    def getsockopt(self, level: int, option: int, size: int = 0) -> bytes:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_PEERCRED)
        return struct.pack("=iII", os.getpid(), self._user, self._user)


def test_users_have_numbers_up_to_two_to_the_32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    assert greeting.peer_of(OtherUser(NOBODY)) == os.getpid()  # type: ignore[arg-type]
    with pytest.raises(JoinError, match=rf"of user 7, this one of user {NOBODY}"):
        greeting.peer_of(OtherUser(7))  # type: ignore[arg-type]


@pytest.mark.parametrize("letter", ["a", "ß", "日", "😀", "\n"])
def test_a_text_without_room_is_cut(letter: str) -> None:
    record = greeting.pack(digest="", refused=letter * 300)
    assert len(record) == greeting.RECORD_BYTES
    kept = greeting.unpack(record)["refused"]
    assert kept == letter * len(kept)
    room = greeting.RECORD_BYTES - len(greeting.pack(digest="").rstrip()) - len(', "refused": ""')
    assert len(kept) in (300, *range(room // 12 - 1, room + 1))
    with pytest.raises(JoinError, match=letter):
        greeting.checked(record, b"")


def test_names_that_have_room_are_whole() -> None:
    record = greeting.pack(digest="d" * 64, name="rank 0, process 4711")
    assert greeting.unpack(record)["name"] == "rank 0, process 4711"
    with pytest.raises(ValueError, match="a greeting of"):
        greeting.pack(digest="d" * 600)


def test_a_nested_record_is_refused_on_any_stack() -> None:
    record = (b"guerdon host " + b"[" * greeting.RECORD_BYTES)[: greeting.RECORD_BYTES]

    def deep(calls: int) -> None:
        if calls:
            deep(calls - 1)
        else:
            greeting.unpack(record)

    for calls in (0, sys.getrecursionlimit() - 300):
        with pytest.raises(JoinError, match="no greeting"):
            deep(calls)
