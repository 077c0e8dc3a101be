"""Reward functions that the engine runs itself: kernels in Rust, without Python's lock, parallel
over cores.

Each name is a factory: it makes a reward function for a dispatcher's list, which is also callable
as TRL calls reward functions, ``(prompts, completions, **columns)``.

>>> from guerdon import Dispatcher, rewards
>>> with Dispatcher([rewards.squad_f1(column="answer"), rewards.think_format()]) as dispatcher:
...     dispatcher.score(completions=["the Eiffel Tower"], answer=["Eiffel tower"]).rewards
array([[[1., 0.]]], dtype=float32)

[The guide](../rewards.md) has a table of originals, values and speed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guerdon._system.lazy_imports import names as _names

if TYPE_CHECKING:
    from guerdon.rewards.answers import exact_match, multiple_choice, normalized_match, squad_em, squad_f1
    from guerdon.rewards.formats import tag_count, think_format
    from guerdon.rewards.instructions import ifeval
    from guerdon.rewards.lengths import cosine_length, repetition_penalty, soft_overlong
    from guerdon.rewards.math.reward import MathReward
    from guerdon.rewards.mathematics import math_equal, math_reward
    from guerdon.rewards.native_reward import KernelOptions, NativeReward
    from guerdon.rewards.overlap import bleu, edit_distance, rouge_l
    from guerdon.rewards.schemas import SchemaReward, json_schema

__all__ = [
    "KernelOptions",
    "MathReward",
    "NativeReward",
    "SchemaReward",
    "bleu",
    "cosine_length",
    "edit_distance",
    "exact_match",
    "ifeval",
    "json_schema",
    "math_equal",
    "math_reward",
    "multiple_choice",
    "normalized_match",
    "repetition_penalty",
    "rouge_l",
    "soft_overlong",
    "squad_em",
    "squad_f1",
    "tag_count",
    "think_format",
]

_HOMES: Final = {
    "KernelOptions": "mathematics",
    "MathReward": "mathematics",
    "NativeReward": "answers",
    "SchemaReward": "schemas",
    "bleu": "overlap",
    "cosine_length": "lengths",
    "edit_distance": "overlap",
    "exact_match": "answers",
    "ifeval": "instructions",
    "json_schema": "schemas",
    "math_equal": "mathematics",
    "math_reward": "mathematics",
    "multiple_choice": "answers",
    "normalized_match": "answers",
    "repetition_penalty": "lengths",
    "rouge_l": "overlap",
    "soft_overlong": "lengths",
    "squad_em": "answers",
    "squad_f1": "answers",
    "tag_count": "formats",
    "think_format": "formats",
}

__getattr__, __dir__ = _names(globals(), _HOMES)
