"""A hostile program of the red team, which becomes a completion.

- A ``forgery`` does not know the answer, which is a random text: only a forged verdict, or a read
  of what it must not read, scores.
- An ``attempt`` tries a forbidden act. It knows the answer and gives it only if the act succeeded,
  so that a score of 0 says that the act failed.
- Should a fence fail, an act does no harm: signals that nobody minds, files opened and left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

__all__ = ["HONEST", "STYLES", "Program", "Style", "attempts", "completion", "forgeries"]

Style = Literal["stdin", "calls", "check"]

STYLES: Final[tuple[Style, ...]] = ("stdin", "calls", "check")

HONEST: Final = """
def add(a, b):
    return a + b

if __name__ == "__main__":
    print(add(*map(int, input().split())))
"""
"""A program that is right, beside each hostile one."""

# What `attempt` finds in its way it raises. A script prints it, so that the reason shows it.
_TAIL: Final[dict[str, str]] = {
    "stdin": """
try:
    attempt()
except BaseException as error:
    print("refused:", type(error).__name__, error)
else:
    print(sum(map(int, input().split())))
""",
    "calls": """
def add(a, b):
    attempt()
    return a + b
""",
}


@dataclass(frozen=True)
class Program:
    """A hostile program.

    Attributes:
        name: In the table and in tests' names.
        what: What it does, in words.
        origin: The paper or thread that has it; "" where it was thought of here.
        text: The program; for an attempt, what defines ``attempt``.
        styles: The kinds of cases that it is tried on.
        knows: Whether it knows the answer.
        hangs: It only ends with its time.
        judging_hangs: Its judging only ends with the time for that.
        beats: The weak graders that it passes (`weak_graders`).
        works: An attempt that succeeds where programs are not fenced.
        machine: The kind of processor that its text is for; "" for any.
    """

    name: str
    what: str
    origin: str
    text: str
    styles: tuple[Style, ...]
    knows: bool
    hangs: bool = False
    judging_hangs: bool = False
    beats: tuple[str, ...] = ()
    works: bool = False
    machine: str = ""


def forgeries(
    table: str, *, styles: tuple[Style, ...] = ("calls", "check"), before: str = "", after: str = ""
) -> tuple[Program, ...]:
    """Programs that do not know the answer, from a table (`_read`)."""
    return _read(table, before, after, styles=styles, knows=False)


def attempts(table: str, *, before: str = "", machine: str = "") -> tuple[Program, ...]:
    """Programs that try what is forbidden, from a table (`_read`); each defines ``attempt``."""
    return _read(table, before, "", styles=("stdin", "calls"), knows=True, machine=machine)


def _read(table: str, before: str, after: str, **usual: Any) -> tuple[Program, ...]:
    """The programs of a table: each has a line ``=== name: what it does`` and its text.

    A line ``#:`` between the two sets a program apart from the others of its table: ``hangs``,
    ``judging_hangs``, ``works``, ``by`` styles, ``on`` a machine, ``beats`` graders, and last
    ``from`` an origin, with semicolons between them.

    Args:
        before: Above each text.
        after: Below it.
        usual: Fields of the programs.
    """
    found = []
    for part in table.split("\n=== ")[1:]:
        title, text = part.split("\n", 1)
        name, what = title.split(": ", 1)
        fields = {**usual, "origin": ""}
        if text.startswith("#: "):
            line, text = text.removeprefix("#: ").split("\n", 1)
            line, _, fields["origin"] = line.partition("from ")
            for option in filter(None, line.split("; ")):
                word, _, rest = option.partition(" ")
                fields.update(_OPTIONS[word](rest))
        found.append(Program(name, what, text=f"{before}{text.rstrip()}\n{after}", **fields))
    return tuple(found)


_OPTIONS: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "hangs": lambda _: {"hangs": True},
    "judging_hangs": lambda _: {"judging_hangs": True},
    "works": lambda _: {"works": True},
    "by": lambda styles: {"styles": tuple(styles.split())},
    "on": lambda machine: {"machine": machine},
    "beats": lambda graders: {"beats": tuple(graders.split(", "))},
}


def completion(program: Program | None, style: Style) -> str:
    """The completion with the program in it; None for the honest one."""
    if program is None:
        text = HONEST
    elif program.knows:
        text = program.text + _TAIL["stdin" if style == "stdin" else "calls"]
    else:
        text = program.text
    return f"Here it is:\n\n```python\n{text}\n```\n"
