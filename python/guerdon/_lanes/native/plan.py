"""Plan of a function of the native lane for the engine: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from guerdon._lanes.native.columns import KernelColumn
from guerdon.errors import RegistrationError

if TYPE_CHECKING:
    from guerdon._native import Kernel

__all__ = ["KernelPlan"]


@dataclass(frozen=True)
class KernelPlan:
    """A kernel and the columns that it gets.

    Attributes:
        spec: Its name and options, as JSON.
        fields: Its columns, in order.
    """

    spec: str
    fields: tuple[KernelColumn, ...]

    def config(self) -> tuple[str, list[str]]:
        """Returns the form for the engine."""
        return self.spec, [field.column for field in self.fields]

    def kernel(self, function: str) -> Kernel:
        """Returns the kernel, for calls without an engine.

        Raises:
            RegistrationError: An option is wrong.
        """
        from guerdon._native import Kernel

        try:
            return Kernel(*self.config())
        except ValueError as error:
            raise RegistrationError(f"reward function {function!r}: {error}.") from None
