"""What a worker sets for a call: its memory, its variables, and the marks between what functions
print."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guerdon._worker import linux, resource_limits
from guerdon._worker.output import OutputMarkers, flush_output
from guerdon._worker.resource_limits import ResourceLimits, missing_variable

MB = 1_000_000


class Limits:
    """The kernel's part: what the process has, and the limits that were set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has = 100 * MB
        self.now_ns = 0
        self.set: list[int] = []
        monkeypatch.setattr(resource_limits, "_private_bytes", lambda: self.has)
        monkeypatch.setattr("time.monotonic_ns", lambda: self.now_ns)
        monkeypatch.setattr(resource, "getrlimit", lambda _: (-1, resource.RLIM_INFINITY))
        monkeypatch.setattr(resource, "setrlimit", lambda _, pair: self.set.append(pair[0]))


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Limits]:
    with monkeypatch.context() as patch:
        yield Limits(patch)


def _recipe(limit: int | None, shape: str = "sample") -> dict[str, Any]:
    return {"memory_limit": limit, "shape": shape}


def test_a_function_without_a_limit_costs_nothing(limits: Limits) -> None:
    made = ResourceLimits(frozenset())
    for function in (0, 1, 0):
        made.switch_to(function)
        assert made.apply(_recipe(None))
        made.lift()
    assert limits.set == []


def test_a_worker_of_one_functions_own_is_kept(limits: Limits) -> None:
    made, recipe = ResourceLimits(frozenset()), _recipe(50 * MB, "batch")
    made.switch_to(0)
    assert made.apply(recipe)
    limits.has += 40 * MB
    limits.now_ns += 20_000_000
    assert made.apply(recipe)
    assert not made.exhausted


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("can't start new thread"), True),
        (ValueError("no"), False),
    ],
    ids=repr,
)
def test_lack_of_memory_names_the_limit(limits: Limits, error: Exception, lacks: bool) -> None:
    made = ResourceLimits(frozenset())
    assert made.explain(error) == ""  # without a limit it is the machine's, or the user's own
    made.switch_to(0)
    made.apply(_recipe(50 * MB))
    assert made.explain(error) == (" (memory_limit of 50 MB)" if lacks else "")
    assert made.exhausted == lacks
    assert (limits.set[-1] == resource.RLIM_INFINITY) == lacks


def test_variables_come_and_go_with_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "before")
    monkeypatch.delenv("GIVEN", raising=False)
    made = ResourceLimits(frozenset())
    made.set_environment(0, {"GIVEN": "secret", "KEPT": "during"})
    made.switch_to(0)
    assert (os.environ["GIVEN"], os.environ["KEPT"]) == ("secret", "during")
    del os.environ["GIVEN"]  # user code may
    made.switch_to(1)
    assert ("GIVEN" in os.environ, os.environ["KEPT"]) == (False, "before")
    made.switch_to(0)
    assert os.environ["GIVEN"] == "secret"
    made.switch_to(2)


def test_replaced_environment_variables_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = os.environ
    made = ResourceLimits(frozenset())
    made.set_environment(0, {"GIVEN": "secret"})
    made.switch_to(0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", None)
        made.switch_to(1)
    assert "GIVEN" not in environ


class ClosedStream:
    """A stream whose flush() ends the program."""

    def flush(self) -> None:
        raise SystemExit(3)


def test_a_stream_of_the_users_ends_nothing_as_it_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", ClosedStream())
    flush_output()


class Odd(KeyError):
    @property
    def args(self) -> tuple[object, ...]:  # type: ignore[override]
        raise RuntimeError("not even that")


@pytest.mark.parametrize(
    "error", [KeyError("OTHER"), KeyError(), KeyError(3), ValueError("A_KEY"), Odd("A_KEY")], ids=repr
)
def test_only_a_key_error_of_a_hidden_variable_is_explained(error: Exception) -> None:
    assert missing_variable(error, frozenset({"A_KEY"})) == ""
    assert "reward(env=['A_KEY'])" in missing_variable(KeyError("A_KEY"), frozenset({"A_KEY"}))


def test_a_function_that_follows_itself_needs_no_mark() -> None:
    reader, writer = os.pipe()
    marks = OutputMarkers(writer)
    assert [marks.switch_to(function) for function in (1, 1, 0, 0, 1)] == [True, False, True, False, True]
    assert os.read(reader, 1000) == b"\0guerdon:1\n\0guerdon:0\n\0guerdon:1\n"
    os.close(marks._fd)
    os.close(reader)


def test_nothing_is_written_to_a_file_with_the_number_of_the_pipe(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    marks = OutputMarkers(writer)
    path = tmp_path / "file"
    mine = os.open(path, os.O_CREAT | os.O_RDWR)
    os.dup2(mine, marks._fd)
    assert not marks.switch_to(1)
    for fd in (mine, marks._fd, reader):
        os.close(fd)
    assert not marks.switch_to(2)
    assert path.read_bytes() == b""


def test_output_of_c_code_is_flushed_without_reloading_the_library() -> None:
    linux.flush_c_stdout()
    loaded = linux._libc()
    linux.flush_c_stdout()
    assert linux._libc() is loaded


def test_a_system_without_subreapers_has_workers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """qemu-user, which containers of another machine run under, refuses this call."""

    def refuse(option: int, value: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(linux, "_prctl", refuse)
    linux.adopt_orphans()
    assert "PR_SET_CHILD_SUBREAPER: Invalid argument" in capsys.readouterr().err
