"""The base class of rewards that keep something between calls: a tokenizer, a client, a compiled
grammar."""

from __future__ import annotations

from collections.abc import Awaitable

__all__ = ["StatefulReward"]


class StatefulReward:
    """A reward with state: derive from it, define ``score``, put an *instance* into the
    dispatcher's list.

    ``score(self, …)`` obeys the per-sample contract of `guerdon.reward`: its parameters name the
    values of a call, it returns a number, None or a dict with ``"score"``, it may be async.
    Optionally define ``finish_group(self, scores, **columns)``: it gets one whole group of this
    reward's own scores, a ``list[float | None]`` of length G in order (None where the sample has no
    score), and the group's columns as lists of length G by the names of `guerdon.group_reward`; it
    returns a ``list[float | None]`` of length G. A failed cell stays failed, however it shapes the
    group; None makes an ok cell abstained.

    The instance is sent to the workers as it is: create large objects, and objects that can't be
    pickled, in ``setup()``. ``reward(MyReward(), timeout=…)`` gives it options.

    Examples:
        >>> class Keyword(StatefulReward):
        ...     def __init__(self, word: str) -> None:
        ...         self.word = word
        ...
        ...     def setup(self) -> None:
        ...         self.needle = self.word.lower()
        ...
        ...     def score(self, text: str) -> float:
        ...         return float(self.needle in text.lower())
        ...
        ...     def finish_group(self, scores: list[float | None], **columns: object) -> list[float | None]:
        ...         best = max((score for score in scores if score is not None), default=0.0)
        ...         return [None if score is None else score - best for score in scores]
        >>> one = Keyword("Paris")
        >>> one.setup(); one.score("in paris")
        1.0
    """

    def setup(self) -> Awaitable[None] | None:
        """Called once per worker, loop or thread (by lane) before the first ``score`` there; may be
        async.

        If it raises or takes longer than ``setup_timeout``, all cells of this reward are `error`
        with its traceback.
        """
        return None

    def close(self) -> Awaitable[None] | None:
        """Called once for each ``setup`` when the dispatcher closes, unless the worker was killed;
        may be async."""
        return None
