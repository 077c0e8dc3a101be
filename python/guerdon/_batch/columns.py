"""The data of one batch: prompts, completions and dataset columns, one value per sample.

- Every list is a copy: the caller may change the original as soon as the call returns.
- Every list has as many values as there are samples; nothing is broadcast, cut or padded.
- `text` is the last assistant message as plain text, whether the data is conversational or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from guerdon.errors import DataError

PROMPTS = "prompts"
COMPLETIONS = "completions"
COMPLETION_IDS = "completion_ids"
ENVIRONMENTS = "environments"
TEXT = "text"
TRAINER_STATE = "trainer_state"
# Arguments of `Dispatcher.score`, so never columns there.
BATCH_OPTIONS = ("num_generations", "group_quorum", "group_timeout", "batch_timeout")
RECORDERS = ("log_extra", "log_metric")
_PIECE = 1 << 16  # a few milliseconds, if the memory of the values is cold


@dataclass(frozen=True)
class Single:
    """A value that is the same for every sample."""

    value: object


@dataclass
class Data:
    """The columns of one batch.

    ``own`` holds what every trainer has (prompts, completions, completion_ids, environments),
    ``dataset`` the columns of its dataset.
    """

    samples: int
    own: dict[str, list[object]]
    dataset: dict[str, list[object] | Single]
    trainer_state: object = None
    # written by `texts` alone, on first use
    _texts: list[object] | None = field(default=None, repr=False)

    @property
    def texts(self) -> list[object]:
        """The last assistant message of each sample as plain text."""
        if self._texts is None:
            self._texts = [plain_text(completion, sample) for sample, completion in enumerate(self.own[COMPLETIONS])]
        return self._texts

    def names(self) -> list[str]:
        """Names of all columns of this batch, for messages."""
        given = [*self.own, *self.dataset]
        return given if self.trainer_state is None else [*given, TRAINER_STATE]


def collect(
    prompts: object,
    completions: object,
    completion_ids: object,
    columns: Mapping[str, object],
    *,
    singles: bool = False,
) -> Data:
    """Returns the batch as lists.

    Args:
        columns: Dataset columns by name, and what a trainer adds to them: ``environments``,
            ``trainer_state``. Recorders are left out.
        singles: Whether a single value may stand for every sample, as some trainers pass;
            else it is refused.

    Raises:
        DataError: Not one value per sample, or no samples.
    """
    if completions is None:
        raise DataError("there are no completions: give completions=[...], one per sample")
    listed = as_values(COMPLETIONS, completions)
    samples = len(listed)
    if samples == 0:
        raise DataError("the batch has no samples: completions is empty")
    own = {COMPLETIONS: listed}
    others = {PROMPTS: prompts, COMPLETION_IDS: completion_ids, ENVIRONMENTS: columns.get(ENVIRONMENTS)}
    for name, values in others.items():
        if values is not None:
            own[name] = as_values(name, values, samples)
    dataset: dict[str, list[object] | Single] = {}
    for name, values in columns.items():
        if name in (ENVIRONMENTS, TRAINER_STATE) or name in RECORDERS:
            continue
        if singles and not _is_list_like(values):
            dataset[name] = Single(values)
        else:
            if not _is_list_like(values):
                import difflib

                close = difflib.get_close_matches(name, BATCH_OPTIONS, n=1)
                meant = f" (did you mean {close[0]}=?)" if close else ""
                raise _not_list(name, values, samples, f", and there is no option of that name{meant}")
            dataset[name] = as_values(name, values, samples)
    return Data(samples, own, dataset, columns.get(TRAINER_STATE))


def refuse_singular(columns: Mapping[str, object]) -> None:
    """Refuses ``prompt=`` and ``completion=``.

    Raises:
        DataError: There is such a column.
    """
    for name, meant in (("prompt", PROMPTS), ("completion", COMPLETIONS)):
        if name in columns:
            raise DataError(f"there is no argument {name}=: the texts go into {meant}=[...], one per sample.")


def as_values(name: str, values: Any, samples: int | None = None) -> list[object]:
    """Returns a list of one value per sample, from any kind of list.

    Args:
        values: A list, tuple, NumPy array, torch tensor, pandas Series, Arrow array, datasets
            Column or other sequence. Rows of an array with several dimensions stay arrays.

    Raises:
        DataError: It isn't a list of any kind, or not of `samples` values.
    """
    if not _is_list_like(values):
        raise _not_list(name, values, samples)
    if isinstance(values, (list, tuple)):
        listed = _copied(values)
    # torch; a row is a copy, because a view is pickled with all of its storage
    elif hasattr(values, "detach"):
        tensor = values.detach().cpu()
        listed = tensor.tolist() if tensor.ndim == 1 else [row.clone() for row in tensor]
    elif getattr(values, "ndim", 1) == 1 and hasattr(values, "tolist"):
        listed = values.tolist()
    elif hasattr(values, "to_pylist"):
        listed = values.to_pylist()
    else:
        listed = list(values)
    if samples is not None and len(listed) != samples:
        raise DataError(
            f"column {name!r} has {len(listed)} value{'' if len(listed) == 1 else 's'}, but there "
            f"{'is 1 completion' if samples == 1 else f'are {samples} completions'}: give one value per "
            f"sample{_repeated(name, len(listed), samples)}"
        )
    return listed


def _repeated(name: str, values: int, samples: int) -> str:
    """Returns the advice for a column with one value per prompt."""
    if values == 0 or samples % values:
        return ""
    times = samples // values
    return f"; if there is one per prompt, repeat each {times} times: [one for one in {name} for _ in range({times})]"


def _copied(values: list[object] | tuple[object, ...]) -> list[object]:
    """A copy, made in pieces: between two of them other threads get the GIL."""
    if len(values) <= _PIECE or type(values) not in (list, tuple):
        return list(values)
    listed: list[object] = []
    for start in range(0, len(values), _PIECE):
        listed += values[start : start + _PIECE]
    return listed


def _not_list(name: str, values: object, samples: int | None, more: str = "") -> DataError:
    hint = "" if isinstance(values, Mapping) else f" ([value] * {samples or 'samples'} if it is the same for all)"
    if isinstance(values, Iterator):
        hint = " (list(…) of it makes one)"
    return DataError(
        f"column {name!r} is {_a(type(values))}, not a list{more}: give a list with one value per sample{hint}"
    )


def _a(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'aeiou' else 'a'} {kind.__name__}"


def plain_text(completion: object, sample: int | None = None) -> str:
    """The last assistant message, or a lone one that names no role; text parts joined without a
    separator; "" without a message.

    Args:
        sample: For the message; None where it is not known.

    Raises:
        DataError: Neither a text nor a list of messages.
    """
    if isinstance(completion, str):
        return completion
    what, needs = (
        ("the completion", "expected") if sample is None else (f"completion of sample {sample}", "`text` needs")
    )
    if not isinstance(completion, (list, tuple)):
        raise DataError(f"{what} is {_a(type(completion))}; {needs} a str or a list of messages")
    for message in reversed(completion):
        if not isinstance(message, Mapping):
            raise DataError(
                f"{what} holds a {type(message).__name__} where a message belongs; "
                f"{needs} a str or a list of messages like {{'role': 'assistant', 'content': '...'}}"
            )
        if message.get("role") == "assistant":
            return content_text(message.get("content"))
    # TRL's own rewards take the first message of a completion, whatever its role.
    if len(completion) == 1 and completion[0].get("role") is None:
        return content_text(completion[0].get("content"))
    return ""


def content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):  # None where the message is only a tool call
        return ""
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
    return "".join(texts)


def _is_list_like(values: object) -> bool:
    if isinstance(values, (list, tuple)):
        return True
    if isinstance(values, (str, bytes, bytearray, memoryview, Mapping, set, frozenset, type)):
        return False
    if getattr(values, "ndim", None) == 0:
        return False
    kind = type(values)
    return hasattr(kind, "__len__") and hasattr(kind, "__getitem__")
