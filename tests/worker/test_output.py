"""Marks between what functions print."""

from __future__ import annotations

import os
from pathlib import Path

from guerdon._worker import linux
from guerdon._worker.output import OutputMarkers


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
