"""A program of another language than Python: written to the program's folder, compiled once, then
run once a case.

The compiler runs behind the same fences: a program can hold what makes it hang or read files. That
it and the run time work is tried once: without its headers every program would score 0.
"""

from __future__ import annotations

from typing import Any, Final

from guerdon.errors import RegistrationError
from guerdon.rewards.code.zygote.deadline import Deadline
from guerdon.rewards.code.zygote.fence import ONE_ARENA
from guerdon.rewards.code.zygote.languages import Language
from guerdon.rewards.code.zygote.script_run import STDIN, ScriptRun, run_script
from guerdon.rewards.code.zygote.zygote_process import ProgramZygote

__all__ = ["COMPILE_S", "CommandProgram", "check_toolchain", "compile_fault"]

COMPILE_S: Final = 30.0
_MOST_MESSAGES: Final = 1 << 20
_HELLO_S: Final = 20.0
_ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": ".",
    "TMPDIR": ".",
    "LANG": "C.UTF-8",
    **ONE_ARENA,
}


class CommandProgram:
    """One program; its folder is empty before it, and then holds its files."""

    def __init__(self, zygote: ProgramZygote, language: Language, source: str, max_output: int) -> None:
        self._zygote = zygote
        self._language = language
        self._source = source
        self._max_output = max_output
        self._written = False

    def compile(self) -> str:
        """Compiles it, if need be; returns the fault, "" if there is none."""
        if not self._language.compile:
            return ""
        run = self._run(self._language.compile, b"", Deadline(COMPILE_S), _MOST_MESSAGES, "build")
        if not run.fault:
            return ""
        return compile_fault(run.stderr.decode("utf-8", "replace"), run.fault)

    def run(self, stdin: bytes, deadline: Deadline) -> ScriptRun:
        """Run it once."""
        mode = "build" if self._language.starts_processes else "exec"
        return self._run(self._language.command, stdin, deadline, self._max_output, mode)

    def _run(self, command: tuple[str, ...], stdin: bytes, deadline: Deadline, most: int, mode: str) -> ScriptRun:
        files: dict[str, bytes] = {}
        if not self._written:
            self._zygote.clear_folder()
            files[self._language.file] = self._source.encode("utf-8")
            self._written = True
        request: dict[str, Any] = {
            "files": files,
            "command": self._language.filled(command),
            "environment": _ENVIRONMENT,
            "opens_stdin": STDIN in self._source,
        }
        return run_script(self._zygote, request, stdin, deadline, most, mode)


def compile_fault(stderr: str, otherwise: str) -> str:
    """The fault of a program that does not compile, by the messages of its compiler."""
    lines = [line for line in stderr.splitlines() if line.strip()] or [otherwise]
    first = next((line for line in lines if "error" in line), lines[0])
    return f"it does not compile: {first[:300]}"


def check_toolchain(zygote: ProgramZygote, language: Language) -> None:
    """Compile and run a program that is right, where the language is a known one.

    Raises:
        RegistrationError: It does not compile, or does not run as it should: how, and what to do.
        ZygoteLostError: Programs can't be run.
    """
    if not language.hello:
        return
    program = CommandProgram(zygote, language, language.hello, _MOST_MESSAGES)
    what = f"code_reward: language={language.name!r} does not work here: of a program that is right"
    do = f"Install {language.needs}" if language.needs else "Install what it needs"
    if fault := program.compile():
        raise RegistrationError(f"{what}, the compiler says: {fault}. {do}, or mend compile=.")
    run = program.run(b"", Deadline(_HELLO_S))
    printed = run.stdout.decode("utf-8", "replace").strip()
    if run.fault or printed != "hello":
        raise RegistrationError(f"{what}, this is the end: {run.fault or f'it printed {printed[:100]!r}'}. {do}.")
