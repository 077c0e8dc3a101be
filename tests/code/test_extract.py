"""The program is found in a completion."""

from __future__ import annotations

import pytest

from guerdon.rewards.code.trusted.extract import Extract, _blocks, extract_program
from guerdon.rewards.code.zygote.languages import LANGUAGES

TAGS = frozenset({"python", "py"})


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\na\n```", "a\n"),
        ("```py\na\n```\ntext\n```python\nb\nc\n```\n", "b\nc\n"),
        ("```Python \na\n```", "a\n"),
        ("```\na\n```", "a\n"),
        ("~~~python\na\n~~~", "a\n"),
        ("````python\n```\na\n````", "```\na\n"),
        ("  ```python\n  a\n  ```", "a\n"),
        ("1. First:\n\n    ```python\n    if a:\n        b\n    ```\n", "if a:\n    b\n"),
        ("- ```python\n  a\n  ```", "a\n"),
        ("\t```python\n\tif a:\n\t\tb\n\t```", "if a:\n    b\n"),
        ("  ```python\nif a:\n  b\n  ```", "if a:\n  b\n"),
        ("   ```python\n   s = '''\nx\n   '''\n   ```", "s = '''\nx\n'''\n"),
        (
            "```python\ndef f():\n    '''\n    ```py\n    x\n    ```\n    '''\n```",
            "def f():\n    '''\n    ```py\n    x\n    ```\n    '''\n",
        ),
        ("```python\r\na\r\n```\r\n", "a\r\n"),
        ("```python title='x'\na\n```", "a\n"),
        ("```{python}\na\n```", "a\n"),
        ("```python\na\n```\n```cpp\nint b;\n```", "a\n"),
        ("```python\na\n```\nOutput:\n```\n3\n```", "a\n"),
        ("```\na\n```\n```\nb\n```", "b\n"),
        ("<think>\n```python\nfoo(\n</think>\n```python\na\n```", "a\n"),
        ("```\nfoo(\n```python\na\n```", "a\n"),
        ("```python\n'''\n- ```\n'''\n```", "'''\n- ```\n'''\n"),
        ("````python\n```text\na\n````", "```text\na\n"),
        ("```python\na\n``` done", "a\n"),
        ("```python\na```", "a\n"),
        ("```python\na```\ntext\n```cpp\nb\n```", "a\n"),
        ("\ufeff```python\n\ufeffa\n```", "a\n"),
        ("```python\na\n```\n```pycon\n>>> f(1)\n```", "a\n"),
        ("```python\n```", "\n"),
        ("```python\na\n```\n```python\ncut off", "a\n"),
        ("text ```python a``` text\n```python\nb\n```", "b\n"),
        ("```python\ns = '''\n``` not a fence\n'''\n```", "s = '''\n``` not a fence\n'''\n"),
        ("<think>x</think>\n<answer>```python\na\n```</answer>", "a\n"),
        ("<think>```python\nfoo(\n</think>```python\na\n```</answer><|im_end|>", "a\n"),
        ("```python\na\n```<|im_end|>\n```text\nb\n```", "a\n"),
        ("```python\na\n``` </s>\nb\n```\nc\n```", "a\n"),
        ("```python\na\n```[/INST]", "a\n"),
        ("```python\na```</answer>", "a\n"),
        ("The code: ```python\na\n```", "a\n"),
        ("**Code:**```python\na\n```\nDone.", "a\n"),
        ("**Code:**```\na\n```\nDone.", "a\n"),
        ("```python\nx = '<b>'\ns = '```python'\n```", "x = '<b>'\ns = '```python'\n"),
        ("```solution\na\n```\n```json\n{}\n```", "a\n"),
        ("```solution\na\n```\n```\nb\n```", "b\n"),
        ("```python_code\na\n```", "a\n"),
    ],
)
def test_the_last_block_of_the_language(text: str, program: str) -> None:
    assert extract_program(text, "last", TAGS) == (program, "")


DOCSTRING = "    '''\n    ```\n    x\n    ```\n    '''\n    return 1"
TWO = "```python\na\n```\n```python\nb\n```"


@pytest.mark.parametrize(
    ("text", "how", "program"),
    [
        ("    return 1\n", "whole", "    return 1\n"),
        ("Here:\n```python\na\n```\nIt works.", "whole", "a\n"),
        ("Here:\n```python\na\n```\n```json\n{}\n```\n", "whole", "a\n"),
        ("    return 1\n```\nIt works.", "whole", "    return 1\n"),
        ("```python\n    return 1\n", "whole", "    return 1\n"),
        (DOCSTRING, "whole", DOCSTRING),
        ("\ufeffa", "whole", "a"),
        (TWO, "whole", "b\n"),
        (TWO, "first", "a\n"),
        (TWO, lambda text: text[:3], "```"),
        ("\ufeffa", lambda text: text, "a"),
    ],
)
def test_the_whole_completion_the_first_block_or_what_a_function_finds(text: str, how: Extract, program: str) -> None:
    assert extract_program(text, how, TAGS) == (program, "")


@pytest.mark.parametrize(
    ("text", "how", "reason"),
    [
        ("", "last", "no code block"),
        ("print(1)", "last", "no code block"),
        ("```python\ncut off", "last", "the code block is cut off (no closing fence)"),
        ("```\ncut off", "first", "the code block is cut off (no closing fence)"),
        ("```cpp\nint a;\n```\n~~~py\ncut off", "last", "the code block is cut off (no closing fence)"),
        ("<answer>```python\ncut off", "last", "the code block is cut off (no closing fence)"),
        ("<answer>```python\ncut off</answer>", "last", "the code block is cut off (no closing fence)"),
        ("```cpp\ncut off", "last", "no code block"),
        ("```output\n1\n```", "last", "no code block in this language, only: output"),
        ("```cpp\nint a;\n```\n```js\n1\n```", "last", "no code block in this language, only: cpp, js"),
        (" \n", "whole", "the completion is empty"),
        ("x", lambda text: None, "the function extract= found no program"),
        ("x", lambda text: 3, "the function extract= found no program"),
    ],
)
def test_without_a_program_there_is_a_reason(text: str, how: Extract, reason: str) -> None:
    assert extract_program(text, how, TAGS) == (None, reason)


@pytest.mark.parametrize(
    "info",
    [
        *["python:main.py", "python,title", "python{1,3}", "python3", "python3.12", "py3", "python2", "PYTHON"],
        *["{.python}", "{python, echo=FALSE}", " python", "python title='a'", "language-python"],
    ],
)
def test_text_behind_the_language_is_not_part_of_it(info: str) -> None:
    assert extract_program(f"```{info}\na\n```", "last", TAGS) == ("a\n", "")


@pytest.mark.parametrize(
    ("language", "tags"),
    [
        ("python", ["ipython", "ipython3", "Python3"]),
        ("cpp", ["c++17", "cpp20", "C++"]),
        ("c", ["c99", "C"]),
        ("javascript", ["mjs", "cjs", "es6", "nodejs"]),
    ],
)
def test_languages_have_tags_of_their_versions(language: str, tags: list[str]) -> None:
    for tag in tags:
        assert extract_program(f"```{tag}\na\n```", "last", LANGUAGES[language].tags) == ("a\n", "")
    for other in ("pycon", "c#", "objective-c", "json"):
        assert extract_program(f"```{other}\na\n```", "last", LANGUAGES[language].tags)[0] is None


@pytest.mark.parametrize(
    ("blocks", "wanted", "chosen"),
    [
        (["def f(): pass", "print(f(1))"], {"f"}, 0),
        (["def f(): pass", "def f(): return 1", "assert f() == 1\ndef test_f(): f()"], {"f"}, 1),
        (["class Solution:\n  def f(self): pass", "Solution().f()"], {"Solution.f"}, 0),
        (["class S:\n  def f(self): pass", "S().f()"], {"f"}, 0),
        (["f = lambda: 1", "f() == 1"], {"f"}, 0),
        (["def f(): pass\ndef g(): pass", "def f(): pass"], {"f", "g"}, 0),
        (["n = int(input())", "assert 1 + 1 == 2"], set(), 0),
        (["import sys\nsys.stdin.read()", "print(1)"], set(), 0),
        (["print(0)", "print(1)"], set(), 1),
        (["def f(): pass", "print(1)"], {"g"}, 1),
    ],
)
def test_the_block_counts_that_defines_what_the_row_asks_for(blocks: list[str], wanted: set[str], chosen: int) -> None:
    text = "".join(f"```python\n{one}\n```\n" for one in blocks)
    assert extract_program(text, "last", TAGS, lambda: wanted) == (f"{blocks[chosen]}\n", "")


@pytest.mark.parametrize("raised", [ValueError("no tag"), SystemExit(1)])
def test_a_function_that_raises_finds_no_program(raised: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    def fails(text: str) -> str:
        raise raised

    for _ in range(2):
        program, why = extract_program("text", fails, TAGS)
        assert program is None
        assert why == f"the function extract= raised {type(raised).__name__}: {raised}"
    assert caplog.text.count("raised") == 1


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("```python\na\n```\n" * 20_000, 20_000),
        ("`" * 500_000 + "\n" + "```a" * 100_000, 0),
        ("```a\nb\n" * 100_000, 0),
        ("```a\n" + " " * 500_000 + "x" + "<a> " * 100_000, 0),
        ("x" * 500_000 + ": " + "`" * 500_000, 0),
        (("- " + " " * 1000 + "x\n") * 1000, 0),
        (" " * 100_000 + "```\n" + (" " * 100_000 + "a\n") * 10 + "```", 1),
    ],
    ids=range(7),
)
def test_many_fences_take_linear_time(text: str, count: int) -> None:
    assert len(_blocks(text)[0]) == count
