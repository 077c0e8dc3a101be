"""`CodeReward`, the item of a dispatcher's list.

It pickles as the arguments that it was made from; called as a trainer calls reward functions it
scores one program after the other.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from guerdon._batch.columns import COMPLETIONS, PROMPTS, Single, collect
from guerdon._functions.spec import FunctionSpec
from guerdon.rewards.code.trusted.compare import printable
from guerdon.rewards.code.trusted.judge import Judge
from guerdon.rewards.code.trusted.row_texts import COMPLETION
from guerdon.rewards.code.zygote.level import Level
from guerdon.rewards.plain_columns import BuiltInReward, given_column

__all__ = ["CodeReward"]

_SINGULAR: Final = {COMPLETIONS: COMPLETION, PROMPTS: "prompt"}


class CodeReward(BuiltInReward):
    """A reward function that runs programs: made by `guerdon.code_reward`.

    It is callable as TRL calls reward functions, ``(prompts, completions, **columns)``, and then
    gives a list with a number for each completion, or None where it could not be judged.

    Attributes:
        level: The fences that hold on this machine.
    """

    def __init__(
        self,
        made: tuple[Callable[..., CodeReward], dict[str, Any]],
        spec: FunctionSpec,
        judge: Judge,
        level: Level,
    ) -> None:
        super().__init__(made, spec)
        self.level = level
        self._judge = judge
        # The zygote runs one program at a time, whatever threads call.
        self._lock = threading.Lock()
        self._owner = os.getpid()

    def __call__(
        self, prompts: object = None, completions: object = None, completion_ids: object = None, **columns: object
    ) -> list[float | None]:
        """The scores of a batch."""
        data = collect(prompts, completions, completion_ids, columns, singles=True)
        given: dict[str, list[object] | Single] = dict(data.dataset)
        given.update((one, data.own[name]) for name, one in _SINGULAR.items() if name in data.own)
        for name in self.spec.wants.named:
            if name in data.dataset or (name in self.spec.wants.required and name not in given):
                given_column(self.spec, name, data)
        scores: list[float | None] = []
        with self._own_lock():
            for sample in range(data.samples):
                row: dict[str, object] = {}
                for name in self.spec.wants.named:
                    values = given.get(name)
                    if values is not None:
                        row[name] = values.value if isinstance(values, Single) else values[sample]
                scores.append(self._scored(row, sample))
        return scores

    def _scored(self, row: dict[str, object], sample: int) -> float | None:
        try:
            return self._judge.judge(row).score
        except Exception as error:  # a function of the user's own may raise anything
            why = printable(str(error))
            logging.getLogger("guerdon").warning("%s: sample %d has no score: %s", self.name, sample, why)
            return None

    def _own_lock(self) -> threading.Lock:
        """Returns another one in a process that was forked: a thread that is not there may hold
        that."""
        if self._owner != os.getpid():
            self._lock = threading.Lock()
            self._owner = os.getpid()  # last: another thread that sees it takes that lock
        return self._lock

    def close(self) -> None:
        """End what the calls of this object started; the next call starts it again."""
        with self._own_lock():
            self._judge.close()

    def __repr__(self) -> str:
        return (
            f"<code reward {self.name!r}: isolation {self.level.name}, timeout {self._judge.judging.rules.timeout:g} s>"
        )
