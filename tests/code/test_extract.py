"""Where the program is in a completion."""

from __future__ import annotations

import pytest

from guerdon._code.extract import Extract, blocks_of, extract_program

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
        ("  ```python\n  a\n  ```", "  a\n"),
        ("```python\r\na\r\n```\r\n", "a\r\n"),
        ("```python title='x'\na\n```", "a\n"),
        ("```{python}\na\n```", "a\n"),
        ("```python\na\n```\n```cpp\nint b;\n```", "a\n"),
        ("```python\na\n```\nOutput:\n```\n3\n```", "a\n"),
        ("```\na\n```\n```\nb\n```", "b\n"),
        ("```python\n```", "\n"),
        ("```python\na\n```\n```python\ncut off", "a\n"),
        ("text ```python a``` text\n```python\nb\n```", "b\n"),
        ("```python\ns = '''\n``` not a fence\n'''\n```", "s = '''\n``` not a fence\n'''\n"),
    ],
)
def test_the_last_block_of_the_language(text: str, program: str) -> None:
    assert extract_program(text, "last", TAGS) == (program, "")


@pytest.mark.parametrize(
    ("text", "how", "reason"),
    [
        ("", "last", "no code block"),
        ("print(1)", "last", "no code block"),
        ("```python\ncut off", "last", "no code block"),
        ("    ```python\n    indented\n    ```", "last", "no code block"),
        ("```cpp\nint a;\n```\n```js\n1\n```", "last", "no code block in this language, only: cpp, js"),
        (" \n", "whole", "the completion is empty"),
        ("x", lambda text: None, "the function extract= found no program"),
        ("x", lambda text: 3, "the function extract= found no program"),
    ],
)
def test_without_a_program_there_is_a_reason(text: str, how: Extract, reason: str) -> None:
    assert extract_program(text, how, TAGS) == (None, reason)


def test_first_whole_and_by_function() -> None:
    text = "```python\na\n```\n```python\nb\n```"
    assert extract_program(text, "first", TAGS) == ("a\n", "")
    assert extract_program(text, "whole", TAGS) == (text, "")
    assert extract_program(text, lambda given: given[:3], TAGS) == ("```", "")


def test_many_fences_take_linear_time() -> None:
    assert len(blocks_of("```python\na\n```\n" * 20_000)) == 20_000
    assert blocks_of("`" * 500_000 + "\n" + "```a" * 100_000) == []
