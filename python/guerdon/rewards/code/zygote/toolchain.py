"""Checks that the compiler and the run time of a language work: a compiler without its headers
would have every program score 0.
"""

from __future__ import annotations

from typing import Final

from guerdon.errors import RegistrationError
from guerdon.rewards.code.zygote.command_run import CommandProgram
from guerdon.rewards.code.zygote.deadline import Deadline
from guerdon.rewards.code.zygote.languages import Language
from guerdon.rewards.code.zygote.zygote_process import ProgramZygote

__all__ = ["check_toolchain"]

_RUN_S: Final = 20.0
_MOST_OUTPUT: Final = 1 << 16


def check_toolchain(zygote: ProgramZygote, language: Language) -> None:
    """Compile and run a program that is right, where the language is a known one.

    Raises:
        RegistrationError: It does not compile, or does not run as it should: how, and what to do.
        ZygoteLostError: Programs can't be run.
    """
    if not language.hello:
        return
    program = CommandProgram(zygote, language, language.hello, _MOST_OUTPUT)
    what = f"code_reward: language={language.name!r} does not work here: of a program that is right"
    do = f"Install {language.needs}" if language.needs else "Install what it needs"
    if fault := program.compile():
        raise RegistrationError(f"{what}, the compiler says: {fault}. {do}, or mend compile=.")
    run = program.run(b"", Deadline(_RUN_S))
    printed = run.stdout.decode("utf-8", "replace").strip()
    if run.fault or printed != "hello":
        raise RegistrationError(f"{what}, this is the end: {run.fault or f'it printed {printed[:100]!r}'}. {do}.")
