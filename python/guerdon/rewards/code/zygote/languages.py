"""Languages of programs: names of their files, and commands to compile and run them.

- A command is a list of texts, without a shell; ``{file}`` is the program's file and ``{out}`` what
  a compiler makes of it.
- The tools of a language are looked for when a reward is made: a missing compiler is not a
  program's fault.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from guerdon.errors import RegistrationError
from guerdon.rewards.code.zygote.readable_tools import beside

__all__ = ["LANGUAGES", "PYTHON", "Language", "language_of", "wrong"]

PYTHON: Final = "python"
_FILE: Final = "program"


@dataclass(frozen=True)
class Language:
    """Commands that compile and run programs of a language.

    Attributes:
        name: As the option names it.
        tags: Of fenced blocks in it, in lower case, without the digits of versions.
        suffix: Of a program's file.
        command: What runs it; none for Python, which the zygote runs itself.
        compile: What compiles it first, if anything does.
        least_memory: What its run time reserves before it uses it, in bytes.
        starts_processes: Whether a program may start others; its compiler always may.
        needs: What to install for it, in words.
        hello: A program that is right and prints "hello"; none of a language that is not known.
    """

    name: str
    tags: frozenset[str]
    suffix: str = ""
    command: tuple[str, ...] = ()
    compile: tuple[str, ...] = ()
    least_memory: int = 0
    starts_processes: bool = False
    needs: str = ""
    hello: str = ""

    @property
    def file(self) -> str:
        """Name of the program's file, in the program's folder."""
        return f"{_FILE}{self.suffix}"

    def filled(self, command: tuple[str, ...]) -> list[str]:
        """A command with the names of files."""
        return [part.replace("{file}", f"./{self.file}").replace("{out}", f"./{_FILE}") for part in command]

    def found(self, reward: str) -> Language:
        """Returns the language with the paths of its commands, where these exist."""
        return replace(self, command=self._located(self.command, reward), compile=self._located(self.compile, reward))

    def check(self) -> None:
        """Checks that its commands exist, on a machine that may differ from the one where they were
        found."""
        for tool in self._tools():
            if not os.access(tool, os.X_OK):
                raise self._lacks("code_reward", tool, "can't be run here")

    def _located(self, command: tuple[str, ...], reward: str) -> tuple[str, ...]:
        if not command or command[0] == "{out}":
            return command
        path = shutil.which(command[0])
        if path is None:
            raise self._lacks(f"code_reward {reward!r}", command[0], "is not on this machine's PATH")
        return (os.path.abspath(path), *command[1:])

    def _lacks(self, who: str, tool: str, why: str) -> RegistrationError:
        return RegistrationError(
            f"{who}: language={self.name!r} needs {tool!r}, which {why}: install {self.needs or 'it'}, or name it by its "
            "path in command= or compile=."
        )

    def _tools(self) -> list[str]:
        return [command[0] for command in (self.command, self.compile) if command and command[0] != "{out}"]

    @property
    def readable(self) -> tuple[str, ...]:
        """Returns folders and files that its commands may need, beside those of the system."""
        return tuple(dict.fromkeys(needed for tool in self._tools() for needed in beside(tool)))


LANGUAGES: Final = {
    PYTHON: Language(PYTHON, frozenset({"python", "py", "ipython"})),
    "cpp": Language(
        "cpp",
        frozenset({"cpp", "c++", "cc", "cxx"}),
        ".cpp",
        ("{out}",),
        ("g++", "-O2", "-std=c++17", "-pipe", "-o", "{out}", "{file}"),
        needs="GCC's C++ compiler (the package g++ of Debian, gcc-c++ of Fedora)",
        hello="#include <algorithm>\n#include <iostream>\n#include <string>\n#include <vector>\n"
        'int main() { std::vector<std::string> all(1, "hello"); std::sort(all.begin(), all.end()); std::cout << all[0] << std::endl; }',
    ),
    "c": Language(
        "c",
        frozenset({"c"}),
        ".c",
        ("{out}",),
        ("gcc", "-O2", "-pipe", "-o", "{out}", "{file}", "-lm"),
        needs="GCC and the C library's headers (the packages gcc and libc6-dev of Debian, gcc of Fedora)",
        hello='#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts("hello"); return 0; }',
    ),
    # V8 reserves address space for its heaps.
    "javascript": Language(
        "javascript",
        frozenset({"javascript", "js", "mjs", "cjs", "node", "nodejs", "es"}),
        ".js",
        ("node", "{file}"),
        least_memory=1 << 30,
        needs="Node.js (the package nodejs of most distributions)",
        hello="console.log('hello');",
    ),
}


def language_of(
    reward: str, name: object, command: Sequence[str] | None, compiled_by: Sequence[str] | None
) -> Language:
    """The language that was asked for.

    Raises:
        RegistrationError: It is unknown, or a command is wrong.
    """
    if not isinstance(name, str) or not name:
        raise wrong(reward, "language", name, "the name of a language")
    known = LANGUAGES.get(name)
    if command is None:
        if compiled_by is not None:
            raise wrong(reward, "compile", compiled_by, 'command= too, as in command=["{out}"]')
        if known is None:
            raise wrong(
                reward, "language", name, f"one of {', '.join(map(repr, LANGUAGES))}, or command= for any other"
            )
        return known.found(reward)
    _check(reward, "command", command)
    _check(reward, "compile", compiled_by)
    _check_names(reward, command, compiled_by)
    suffix = f".{name.lower()}" if name.isalnum() else ".txt"
    base = Language(name, frozenset({name.lower()}), suffix) if known is None else known
    if name == PYTHON:  # of which only the files are like those of other languages
        base = Language(name, frozenset({name}), ".txt")
    made = replace(
        base, command=tuple(command), compile=tuple(compiled_by or ()), starts_processes=command[0] != "{out}"
    )
    return made.found(reward)


def _check(reward: str, option: str, given: object) -> None:
    if given is None:
        return
    if not isinstance(given, (list, tuple)) or not given or not all(part and isinstance(part, str) for part in given):
        raise wrong(reward, option, given, 'a list of texts, as in ["node", "{file}"]')


def _check_names(reward: str, command: Sequence[str], compiled_by: Sequence[str] | None) -> None:
    """Refuses commands that can't run any program."""
    run, built = " ".join(command), " ".join(compiled_by or ())
    if compiled_by is not None and ("{file}" not in built or "{out}" in compiled_by[0]):
        raise wrong(reward, "compile", compiled_by, "a compiler and {file}, as in ['gcc', '-o', '{out}', '{file}']")
    if compiled_by is None and "{out}" in run:
        raise wrong(reward, "command", command, "compile= too, which makes {out}")
    if compiled_by is None and "{file}" not in run:
        raise wrong(reward, "command", command, "{file}, the program's file, in it, as in ['node', '{file}']")


def wrong(reward: str, option: str, value: object, expected: str) -> RegistrationError:
    """The error of a wrong option."""
    return RegistrationError(f"code_reward {reward!r}: {option}={value!r}: expected {expected}.")
