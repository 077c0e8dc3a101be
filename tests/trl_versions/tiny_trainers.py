"""Trainers of any TRL from 0.18 on, with a model and a tokenizer made on the spot."""

from __future__ import annotations

import inspect
import os
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is looked up or reported
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("TRITON_INTERPRET", "1")  # TRL 1.15 has a kernel in its loss

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM, set_seed

from tests.integrations.trl import tiny_trainer
from tests.integrations.trl.tiny_trainer import make_config, make_data, make_settings

VERSION = tuple(int(part) for part in metadata.version("trl").split(".")[:2])

# Modules of each trainer and its config, the newest first.
_HOMES = {
    "GRPO": ("trl",),
    "RLOO": ("trl",),
    "SDPO": ("trl.experimental.sdpo",),
    "OnlineDPO": ("trl.experimental.online_dpo", "trl"),
}


def classes(kind: str) -> tuple[Any, Any] | None:
    """The trainer and its config; None where this TRL has none that takes reward functions."""
    for home in _HOMES[kind]:
        try:
            module = import_module(home)
            trainer, config = getattr(module, f"{kind}Trainer"), getattr(module, f"{kind}Config")
        except (ImportError, AttributeError):
            continue
        if "reward_funcs" in inspect.signature(trainer.__init__).parameters:
            return trainer, config
    return None


def make_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|end|>", "<|pad|>"]
    tokenizer.train_from_iterator(
        [], trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    )
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=special[0],
        pad_token=special[1],
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
    )
    made.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return made


def make_model(tokenizer: PreTrainedTokenizerFast, folder: Path) -> Qwen2ForCausalLM:
    """A model that trainers can load once more from where it says that it comes from."""
    model = Qwen2ForCausalLM(make_config(tokenizer))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model.config._name_or_path = str(folder)
    model.name_or_path = str(folder)
    return model


def make_trainer(
    functions: list[Any], folder: Path, kind: str = "GRPO", trainer: Any = None, config: Any = None, **options: Any
) -> Any:
    """A trainer with a fresh model; the same seed and functions give the same run.

    Args:
        trainer: Another class than TRL's of this `kind`.
        config: Its class, likewise.
        **options: Of its config.
    """
    if trainer is None or config is None:
        found = classes(kind)
        assert found is not None
        trainer, config = trainer or found[0], config or found[1]
    settings = make_settings(folder / "out", 7, learning_rate=1e-3, max_completion_length=6)
    if kind == "OnlineDPO":
        del settings["num_generations"], settings["beta"], settings["max_completion_length"]
        settings.update(max_new_tokens=6)
    if kind == "SDPO":
        settings.update(distillation_weight=0.0, sdpo_policy_loss_mode="hybrid")
    set_seed(7)
    tokenizer = make_tokenizer()
    known = inspect.signature(config.__init__).parameters
    arguments = {
        "model": make_model(tokenizer, folder / "model"),
        "reward_funcs": functions,
        "args": config(**{name: value for name, value in {**settings, **options}.items() if name in known}),
        "train_dataset": make_data(8),
        "processing_class": tokenizer,
    }
    return trainer(**arguments)


def without_times(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A trainer's log less what no two runs have alike, and less our own metrics."""
    return [
        {key: value for key, value in entry.items() if "profiling" not in key}
        for entry in tiny_trainer.without_times(history)
    ]
