"""Stacks of the user's code in this process, for a dump."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from guerdon._native import BatchCall

__all__ = ["StackFrame", "StackSource"]

StackFrame = tuple[str, int, str]
"""File, line, name of the function; a stack is a list of these, outermost first."""


class StackSource(Protocol):
    """The lanes that run user code in this process. None of it waits or takes a lock."""

    def thread_name(self, function: int, number: int) -> str:
        """Returns the name of a thread of the thread lane."""

    def loop_name(self, index: int) -> str:
        """Returns the name of an event loop."""

    def stack_of_thread(self, ident: int) -> list[StackFrame]:
        """The user's part of a thread's stack."""

    def stack_of_call(self, snapshot: BatchCall) -> list[StackFrame]:
        """The user's part of a coroutine's stack."""
