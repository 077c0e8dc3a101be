"""All programs of the red team, by what they try."""

from __future__ import annotations

from typing import Final

from tests.code.red_team.program import Program
from tests.code.red_team.programs import (
    early_exits,
    files,
    floods,
    forged_output,
    forged_values,
    kernel,
    patched_modules,
    processes,
    reading,
    shared_state,
    signals,
    sockets,
)

__all__ = ["ALL", "CLASSES"]

CLASSES: Final[dict[str, tuple[Program, ...]]] = {
    "Forged values": forged_values.PROGRAMS,
    "Early ends": early_exits.PROGRAMS,
    "Forged output": forged_output.PROGRAMS,
    "Patched modules": patched_modules.PROGRAMS,
    "Reading the answer": reading.PROGRAMS,
    "Files": files.PROGRAMS,
    "Processes": processes.PROGRAMS,
    "Signals": signals.PROGRAMS,
    "Sockets and descriptors": sockets.PROGRAMS,
    "Floods": floods.PROGRAMS,
    "What is left and shared": shared_state.PROGRAMS,
    "The kernel": kernel.PROGRAMS,
}

ALL: Final[tuple[Program, ...]] = tuple(program for programs in CLASSES.values() for program in programs)
