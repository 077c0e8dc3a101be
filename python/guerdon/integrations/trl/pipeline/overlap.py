"""Rewards of completions that are finished while others of their batch are still generated.

Each row is scored once, with what TRL gives its reward functions: when generation is over, each
completion is compared with TRL's own, and if one differs the whole batch is scored anew. Watching
does not change the generation; rows that are not seen in time are scored at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from trl.data_utils import is_conversational
from trl.trainer import grpo_trainer

from guerdon.integrations.trl.patching import patched
from guerdon.integrations.trl.pipeline.completion_feed import CompletionFeed, OnComplete
from guerdon.integrations.trl.pipeline.scored_arguments import ScoredArguments
from guerdon.integrations.trl.pipeline.scoring import BatchScoring


@dataclass(eq=False)
class EarlyScoring:
    """The rows of one batch whose rewards begin before the batch is generated.

    Attributes:
        trainer: TRL's.
        scoring: The batch's rewards, not begun.
        inputs: The data's rows.
        prompts: What is generated from, one per row.
        given: What is the same for all rows, as TRL gives it.
        feed: Of completions between ranks; None where there is none.
        scored: The data's columns and prompts as they were, where a class of the user's may change
            them.
        begun: Token ids and completion of each row whose rewards began early.
        watched: Whether a generation was watched; written by `watching`.
    """

    trainer: Any
    scoring: BatchScoring
    inputs: Sequence[Mapping[str, Any]]
    prompts: Any
    given: dict[str, Any]
    feed: CompletionFeed | None = None
    scored: ScoredArguments | None = None
    watched: bool = False
    _prompt_ids: Sequence[Any] = ()  # written when generation starts
    begun: dict[int, tuple[list[int], Any]] = field(default_factory=dict)
    _error: Exception | None = None  # kept for `finish`, where all ranks agree on it

    @contextmanager
    def watching(self, prompt_ids: Sequence[Any]) -> Iterator[None]:
        """Sees rows end while TRL generates."""
        trainer = self.trainer
        self.watched = True
        self._prompt_ids = prompt_ids
        if trainer.use_vllm:
            client: Any = getattr(trainer.vllm_generation, "vllm_client", None)
            feed = self.feed
            if not hasattr(client, "on_complete"):  # only rank 0 talks to the server
                with nullcontext() if feed is None else feed.receiving(self.completed):
                    yield
                return
            if feed is not None:
                feed.begin()
            with patched(client, {"on_complete": self._completed_anywhere}):
                yield
            return
        module = trainer.accelerator.unwrap_model(trainer.model_wrapped)
        if hasattr(module, "peft_config") and hasattr(module, "get_base_model"):
            module = module.get_base_model()
        hook = _EndOfRowHook(len(prompt_ids), trainer.eos_token_ids, self.completed)
        with module.register_forward_pre_hook(hook, with_kwargs=True):
            yield

    def completed(self, rows: list[int], ids: list[list[int]]) -> None:
        """These rows of this rank are complete, with these tokens."""
        if self._error is not None:
            return
        try:
            completions = self._decode(rows, ids)
            if not self.begun:
                self.scoring.open(self.given)
            self._add(rows, completions, ids)
            self.begun.update(zip(rows, zip(ids, completions, strict=True), strict=True))
        except Exception as error:
            self._error = error

    def _completed_anywhere(self, rows: list[int], ids: list[list[int]]) -> None:
        """Does as `completed` for rows that are counted over all ranks."""
        count = len(self.inputs)
        if self.feed is not None:
            self.feed.send(rows, ids, count)
        own = [place for place, row in enumerate(rows) if row < count]
        if own:
            self.completed([rows[place] for place in own], [ids[place] for place in own])

    def finish(self, given: Mapping[str, Any]) -> bool:
        """Begins the rest of what this rank scores for itself, once all are generated.

        Args:
            given: What the trainer would call a function with, by name.

        Returns:
            False if no row was begun, a row has changed, or an override asks for part of the batch,
            or once more: all rows are to be scored.

        Raises:
            Exception: The error that came up while others were generated.
        """
        completions, ids = given["completions"], given["completion_ids"]
        if self.scoring.completed or len(completions) != len(self.prompts):
            return False
        others = {name: values for name, values in given.items() if values is not completions and values is not ids}
        if self.scored is not None and not self.scored.compare(others, range(len(completions))):
            return False
        if self._error is not None:
            raise self._error
        if not self.begun:
            return False
        for row, (tokens, completion) in self.begun.items():
            if completion != completions[row] or tokens != list(ids[row]):
                return False
        rest = [row for row in range(len(completions)) if row not in self.begun]
        if rest:
            self._add(rest, [completions[row] for row in rest], [ids[row] for row in rest])
        for appender in self.scoring.appenders:
            appender.finish()
        return True

    def _add(self, rows: list[int], completions: Sequence[Any], ids: Sequence[list[int]]) -> None:
        columns = columns_of([self.inputs[row] for row in rows])
        columns = {name: values for name, values in columns.items() if name not in self.given}
        for appender in self.scoring.appenders:
            appender.add(completions, [self.prompts[row] for row in rows], ids, columns, indices=rows)

    def _decode(self, rows: list[int], ids: list[list[int]]) -> list[Any]:
        """The completions as TRL gives them to reward functions."""
        trainer = self.trainer
        if not is_conversational({"prompt": self.prompts[0]}):
            return list(trainer.processing_class.batch_decode(ids, skip_special_tokens=True))
        tokenizer = trainer._tokenizer
        # A trainer without tools takes a message's text as it is.
        if hasattr(trainer, "tools") and any(
            getattr(tokenizer, name, None) is not None for name in ("response_template", "response_schema")
        ):
            parse = grpo_trainer.parse_response
            return [
                [parse(tokenizer, tokens, prefix=self._prompt_ids[row], tools=trainer.tools)]
                for row, tokens in zip(rows, ids, strict=True)
            ]
        texts = trainer.processing_class.batch_decode(ids, skip_special_tokens=True)
        return [[{"role": "assistant", "content": text}] for text in texts]


def columns_of(inputs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The data's columns as TRL gives them to reward functions."""
    own = ("prompt", "completion", "completion_ids")
    return {name: [row[name] for row in inputs] for name in inputs[0] if name not in own}


class _EndOfRowHook:
    """A hook before a model's forward, which sees each generated token, and so each row's end."""

    def __init__(self, rows: int, ends: Sequence[int], on_complete: OnComplete) -> None:
        self._rows = rows
        self._ends = list(ends)
        self._on_complete = on_complete
        self._width = 0  # of the last input; 0 before the prompt
        self._tokens: list[torch.Tensor] = []  # by step, one per row
        self._reported: set[int] = set()

    def __call__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = kwargs.get("input_ids", args[0] if args else None)
        if ids is None or ids.ndim != 2 or ids.shape[0] != self._rows:
            return
        before, self._width = self._width, ids.shape[1]
        # A step feeds one token a row, or without a cache the whole row; else it is the prompt.
        if before == 0 or (ids.shape[1] > 1 and ids.shape[1] != before + 1):
            return
        last = ids[:, -1]
        self._tokens.append(last)
        ended = torch.isin(last, torch.tensor(self._ends, device=last.device)).nonzero().flatten().tolist()
        new = [row for row in ended if row not in self._reported]
        if new:
            self._reported.update(new)
            self._on_complete(new, torch.stack(self._tokens, dim=1)[new].tolist())
