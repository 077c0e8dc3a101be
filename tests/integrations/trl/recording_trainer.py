"""Our trainer, watched: which rows it trains on, and with which ratio."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from guerdon import Dispatcher
from guerdon.integrations.trl import GRPOTrainer
from tests.integrations.trl.tiny_trainer import make_trainer

SIZES: dict[str, Any] = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "max_steps": 3,
    "prompts": 16,
}


class RecordingTrainer(GRPOTrainer):
    """Notes the rows of every micro-step."""

    def __init__(self, *args: Any, **named: Any) -> None:
        # By micro-step, (prompt, completion) of each row
        self.pieces: list[list[tuple[str, str]]] = []
        self.tokens: list[int] = []  # by micro-step, of prompts and completions
        self.ratios: list[float] = []  # by micro-step, the farthest from 1
        self.generated: list[str] = []  # a prompt per generated row, in training
        super().__init__(*args, **named)

    def _generate(self, prompts: Any) -> Any:
        if self._replaying is None and self.model.training:
            self.generated.extend(str(prompt) for prompt in prompts)
        return super()._generate(prompts)

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        if self.model.training:
            self.tokens.append(int(inputs["prompt_mask"].sum() + inputs["completion_mask"].sum()))
            self.pieces.append(
                [
                    (self._text(ids, mask), self._text(completion, answered))
                    for ids, mask, completion, answered in zip(
                        inputs["prompt_ids"],
                        inputs["prompt_mask"],
                        inputs["completion_ids"],
                        inputs["completion_mask"],
                        strict=True,
                    )
                ]
            )
            if "old_per_token_logps" in inputs:
                with torch.no_grad():
                    now, _, _ = self._get_per_token_logps_and_entropies(
                        model,
                        torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
                        torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
                        inputs["completion_ids"].size(1),
                    )
                apart = torch.exp(now - inputs["old_per_token_logps"]) - 1
                self.ratios.append(float((apart * inputs["completion_mask"]).abs().max()))
        return super()._compute_loss(model, inputs)

    def _text(self, ids: torch.Tensor, mask: torch.Tensor) -> str:
        return str(self._tokenizer.decode(ids[mask.bool()]))

    def prompts_seen(self) -> Counter[str]:
        """How often each prompt was trained on."""
        return Counter(prompt for piece in self.pieces for prompt, _ in piece)


def make_recording_trainer(functions: Any, folder: Path, pipeline: Any = "off", **options: Any) -> RecordingTrainer:
    """A watched trainer of four micro-steps a batch; see `make_trainer`."""
    settings = {**SIZES, **options}
    settings["more"] = {"pipeline": pipeline, **settings.get("more", {})}
    trainer: RecordingTrainer = make_trainer(functions, folder, trainer_class=RecordingTrainer, **settings)
    return trainer


def trained(functions: Any, folder: Path, pipeline: Any = "off", **options: Any) -> RecordingTrainer:
    """A watched trainer after its run, with a dispatcher or the functions of one."""
    made = Dispatcher(functions, workers=1) if isinstance(functions, list) else nullcontext(functions)
    with made as dispatcher:
        trainer = make_recording_trainer(dispatcher, folder, pipeline, **options)
        trainer.train()
    return trainer
