"""What can't be used is refused with a message that names file, line and field, and with exit code
2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command, write_rewards

GOOD = '{"completion": "4", "answer": "4"}\n'


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["data.jsonl has no rows"]),
        ("\n \n", ["data.jsonl has no rows"]),
        (GOOD + "{oops\n", ["data.jsonl, line 2 is not JSON", "column 2"]),
        (GOOD + "\n[1, 2]\n", ["data.jsonl, line 3 is a list", "a line of its own"]),
        (GOOD + "17\n", ["line 2 is a number, not an object"]),
        (GOOD + '{"answer": "4"}\n', ["line 2 has no field 'completion'", "'answer'", "--completion-field"]),
        (
            GOOD + '{"completion": null, "answer": "4"}\n',
            ["line 2: 'completion' is null", "a string or a list of messages"],
        ),
        (
            GOOD + '{"completion": ["a"], "answer": "4"}\n',
            ["line 2: 'completion' is a list whose items are not all messages"],
        ),
        (GOOD + '{"completion": "4"}\n', ["line 2 has no field 'answer'", "the column 'answer' of 'correct'"]),
        ('{"completion": "4"}\n', ["no row of", "'correct' wants the column 'answer'", "--map answer=FIELD"]),
        ('{"completion": "4", "anwser": ""}\n', ["Did you mean 'anwser'?"]),
        (
            '{"completion": "4", "answer": "4", "answer": "5"}\n',
            ["line 1 can't be read: the field 'answer' is there twice"],
        ),
        ('{"completion": ' + "[" * 100_000 + "\n", ["line 1 can't be read"]),
        ('{"completion": "4", "answer": ' + "9" * 5000 + "}\n", ["line 1 can't be read"]),
        (GOOD + '{"completion": "\udcff"}\n', ["data.jsonl, line 2 is not UTF-8: byte 0xff at 17"]),
    ],
)
def test_data_that_cannot_be_used(guerdon: Command, rewards: Path, tmp_path: Path, text: str, parts: list[str]) -> None:
    data, out = tmp_path / "data.jsonl", tmp_path / "out.jsonl"
    data.write_bytes(text.encode(errors="surrogateescape"))
    err = guerdon.refused("score", f"{rewards}:correct", data, "-o", out)
    for part in parts:
        assert part in err
    assert not out.exists()  # nothing was scored


def test_a_byte_order_mark_is_no_mistake(guerdon: Command, rewards: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert guerdon("score", rewards, data).code == 0


def test_a_field_that_functions_know_by_another_meaning(guerdon: Command, rewards: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"completion": "4", "answer": "4", "text": "page"}\n')
    assert "of that name too. Rename the field: --map OTHER=text" in guerdon.refused("score", f"{rewards}:length", data)
    assert guerdon("score", f"{rewards}:correct", data).code == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.py", "there is no file"),
        ("nowhere", "there is no module 'nowhere'"),
        ("no such", "neither a file that ends in .py nor the name of a module"),
        pytest.param("x" * 5000, "there is no module", id="too long"),
        ("{rewards}:nothing", "has no 'nothing'. It has: "),
        ("{rewards}:correct,", "expected file.py, module, or one of them with names"),
        ("{rewards}:guerdon.StatefulReward", "is a class, not a reward function"),
    ],
)
def test_rewards_that_cannot_be_found(guerdon: Command, rewards: Path, data: Path, name: str, message: str) -> None:
    assert message in guerdon.refused("score", name.format(rewards=rewards), data)


def test_an_unknown_name_lists_the_reward_functions(guerdon: Command, tmp_path: Path, data: Path) -> None:
    text = "import math\nfrom guerdon import reward\n\ndef plain(prompts, completions, **columns): ...\n"
    text += "\n@reward\ndef correct(completion): ...\n"
    assert "has no 'corect'. It has: plain, correct.\n" in guerdon.refused(
        "score", f"{write_rewards(tmp_path, text)}:corect", data
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("def plain(prompts, completions, **columns): ...\n", ["has no rewards", "@guerdon.reward", ":plain"]),
        (
            "import nothing_like_that\n",
            ["can't be loaded", "line 1", "ModuleNotFoundError: No module named 'nothing_like_that'"],
        ),
        ("def f(:\n", ["can't be loaded", "SyntaxError"]),
        ("raise SystemExit(0)\n", ["can't be loaded", "SystemExit"]),
        ("import guerdon\n@guerdon.reward(timeout=-1)\ndef f(completion): ...\n", ["timeout"]),
        ("import guerdon\n@guerdon.reward\ndef f(prompts): ...\n", ["use 'prompt'"]),
        (
            "from guerdon import *\na = reward(lambda text: 1.0, name='a')\nx = Dispatcher([a])\ny = Dispatcher([a])\n",
            ["has 2 dispatchers", ":x"],
        ),
    ],
)
def test_files_that_cannot_be_loaded(guerdon: Command, data: Path, tmp_path: Path, text: str, parts: list[str]) -> None:
    err = guerdon.refused("score", write_rewards(tmp_path, text), data)
    for part in parts:
        assert part in err
    assert "guerdon/cli" not in err  # no frames of ours


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--map", "answer"], "expected COLUMN=FIELD"),
        (["--map", "answer=nothing"], "has the field 'nothing'"),
        (["--map", "other=prompt"], "no reward function takes a column 'other'"),
        (["--map", "answer=answer", "--map", "answer=prompt"], "names the column 'answer' twice"),
        (["--workers", "0"], "expected a whole number of at least 1"),
        (["--num-generations", "x"], "expected a whole number of at least 1"),
        (["--max-failure-rate", "2"], "expected a number from 0 to 1"),
        (["-o", "/nowhere/out.jsonl"], "can't be written: No such file or directory"),
        (["--failures", "/nowhere/out.jsonl"], "can't be written: No such file or directory"),
        (["--unknown"], "unrecognized arguments: --unknown"),
        (["--failure-limit", "0.1"], "[--max-failure-rate X]"),
    ],
)
def test_options_that_cannot_be_used(
    guerdon: Command, rewards: Path, data: Path, options: list[str], message: str
) -> None:
    assert message in guerdon.refused("score", f"{rewards}:correct", data, *options)


@pytest.mark.parametrize("option", ["-o", "--failures"])
def test_no_output_overwrites_what_is_read(guerdon: Command, rewards: Path, data: Path, option: str) -> None:
    for file, what in ((data, "the input file"), (rewards, "the file of the reward functions")):
        before = file.read_bytes()
        assert f"{option} {str(file)!r} is {what}: choose another file." in guerdon.refused(
            "score", f"{rewards}:correct", data, option, file
        )
        assert file.read_bytes() == before


def test_the_two_outputs_are_two_files(guerdon: Command, rewards: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert "is the file of -o too" in guerdon.refused("score", f"{rewards}:correct", data, "-o", out, "--failures", out)
    assert not out.exists()
    assert guerdon("score", f"{rewards}:correct", data, "-o", "/dev/null", "--failures", "/dev/null").code == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_output_is_reported(guerdon: Command, rewards: Path, data: Path) -> None:
    assert guerdon.refused("score", f"{rewards}:correct", data, "-o", "/dev/full").endswith(
        "guerdon: the results could not all be written: No space left on device.\n"
    )


def test_data_that_is_no_file(guerdon: Command, rewards: Path, tmp_path: Path) -> None:
    assert "is a folder" in guerdon("score", rewards, tmp_path).err
    assert "No such file" in guerdon("score", rewards, tmp_path / "nothing.jsonl").err


def test_parquet_that_is_none(guerdon: Command, rewards: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    data = tmp_path / "data.parquet"
    data.write_text(GOOD)
    err = guerdon.refused("score", rewards, data)
    assert "can't be read as Parquet" in err
    assert ".." not in err


def test_no_command(guerdon: Command) -> None:
    assert "score a file of completions" in guerdon.refused()
