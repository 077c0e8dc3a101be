"""The progress of a profile: one line on stderr; what judges will be asked, and the package's first
warnings, on lines that stay."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TextIO

from guerdon._system.safe_text import printable
from guerdon.cli.progress import draw
from guerdon.errors import GuerdonWarning, QuietRewardWarning

if TYPE_CHECKING:
    from guerdon.profile.judge_plan import JudgePlan
    from guerdon.profile.profiling import Work

__all__ = ["ProfileProgress"]


_WARNINGS: Final = 10


class ProfileProgress:
    """Draws on `stream`, if `shown`."""

    def __init__(self, stream: TextIO, *, shown: bool) -> None:
        self._stream = stream
        self._shown = shown
        self._warned = 0

    def show(self, plan: Work) -> None:
        """Shows the next piece of work."""
        if self._shown:
            draw(self._stream, f"{plan.done}/{plan.total}  {plan.function}: {plan.what}")

    def announce(self, plan: JudgePlan) -> None:
        """Announces the requests to a judge; also on a pipe."""
        self.clear()
        print(f"guerdon: {plan}", file=self._stream, flush=True)

    @contextlib.contextmanager
    def warnings(self) -> Iterator[None]:
        """Meanwhile, shows warnings of this package at once: stderr is kept back until the end."""
        other = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **options: Any) -> None:
            if issubclass(category, QuietRewardWarning):
                return  # of references and probes; what it means is a finding
            if not issubclass(category, GuerdonWarning) or self._warned >= _WARNINGS:
                other(message, category, *where, **options)
                return
            self._warned += 1
            self.clear()
            print(f"guerdon: {printable(str(message))}", file=self._stream, flush=True)

        warnings.showwarning = show
        try:
            yield
        finally:
            warnings.showwarning = other

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            draw(self._stream, "")
