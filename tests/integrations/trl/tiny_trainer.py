"""A model and a tokenizer made on the spot, and a run of TRL's trainers with them, unmodified."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Nothing is looked up or reported; read when the libraries are imported
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
import tqdm
import trl
from datasets import Dataset
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
    set_seed,
)

tqdm.tqdm.monitor_interval = 0  # else a thread that stays
torch.set_num_threads(1)  # the model is too small for more

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

MODES = ["off", "overlap", "mini_batch", "one_step", "all"]
"""The values of `pipeline=`."""
SIZES: dict[str, Any] = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "max_steps": 2,
    "prompts": 16,
    "ends": 16,
    "learning_rate": 0.0,
}
"""A run of two steps that leaves the model as it is."""


def make_tokenizer(calls: Sequence[str] | None = None) -> PreTrainedTokenizerFast:
    """Bytes, TRL's chat template, and for `calls` a token for each piece of the template."""
    template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([] if calls is None else [template], trainer)
    tokenizer.add_tokens([AddedToken(call, special=False, normalized=False) for call in calls or ()])
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    made.chat_template = template
    return made


def make_config(tokenizer: PreTrainedTokenizerFast, **changes: Any) -> Qwen2Config:
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 512,
        "initializer_range": 0.1,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    return Qwen2Config(**{**settings, **changes})


def make_scorer(folder: Path) -> str:
    """A reward model in ``folder/scorer``, with its tokenizer."""
    tokenizer = make_tokenizer()
    path = folder / "scorer"
    Qwen2ForSequenceClassification(make_config(tokenizer, num_labels=1)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


def make_settings(folder: Path, seed: int, **options: Any) -> dict[str, Any]:
    """Those of a config of TRL, for a few short steps on the CPU."""
    return {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "seed": seed,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_steps": 1,
        "max_steps": 2,
        "beta": 0.0,
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        **options,
    }


def make_data(rows: int, *, conversational: bool = False) -> Dataset:
    """Prompts, the same for each seed, with a column ``answer``."""
    texts = [f"say {index}" for index in range(rows)]
    prompts = [[{"role": "user", "content": text}] for text in texts] if conversational else texts
    answers = ["?" if index % 3 == 2 else "aeiou"[index % 5] for index in range(rows)]
    return Dataset.from_dict({"prompt": prompts, "answer": answers})


def make_trainer(
    functions: Any,
    folder: Path,
    *,
    kind: str = "GRPO",
    conversational: bool = False,
    seed: int = 7,
    prompts: int = 8,
    evaluate: bool = False,
    environment_factory: Any = None,
    trainer_class: Any = None,
    config_class: Any = None,
    data: Any = None,
    more: dict[str, Any] | None = None,
    ends: int = 0,
    **options: Any,
) -> Any:
    """A trainer on the CPU with a fresh model; the same seed and functions give the same run.

    Args:
        trainer_class: Another class than TRL's of this `kind`.
        config_class: Another than the config of this `kind`.
        data: The training data, if not `prompts` rows of `make_data`.
        more: More arguments of the class.
        ends: How many tokens end a completion beside the tokenizer's own, so that more of them end
            early.
        **options: Of its config.
    """
    set_seed(seed)
    tokenizer = make_tokenizer()
    settings = make_settings(folder, seed, learning_rate=1e-3, max_completion_length=8)
    if evaluate:
        settings.update(eval_strategy="steps", eval_steps=1, num_generations_eval=2, per_device_eval_batch_size=4)
    settings.update(options)
    more = dict(more or {})
    if environment_factory is not None:
        more["environment_factory"] = environment_factory
    model = Qwen2ForCausalLM(make_config(tokenizer))
    if ends:
        model.generation_config.eos_token_id = [tokenizer.eos_token_id, *range(100, 100 + ends)]
    if settings["beta"]:  # TRL loads the reference model from where the model comes from
        model.save_pretrained(folder / "reference")
        model.config._name_or_path = str(folder / "reference")
    trainer = (trainer_class or getattr(trl, f"{kind}Trainer"))(
        model=model,
        processing_class=tokenizer,
        reward_funcs=functions,
        args=(config_class or getattr(trl, f"{kind}Config"))(**settings),
        train_dataset=make_data(prompts, conversational=conversational) if data is None else data,
        eval_dataset=make_data(2, conversational=conversational) if evaluate else None,
        **more,
    )
    ending(trainer)
    return trainer


_made: list[Any] = []  # trainers whose loops still run; written by `ending` and `end_loops`


def ending(trainer: Any) -> None:
    """Lets `end_loops` end what this trainer has running."""
    _made.append(trainer)


def end_loops() -> None:
    """Ends the event loops, and what of ours is on them, that trainers leave to the exit."""
    # Not in every TRL with which tests/trl_versions imports this module.
    from trl.trainer.utils import shutdown_event_loop_in_daemon

    atexit.unregister(shutdown_event_loop_in_daemon)
    while _made:
        trainer = _made.pop()
        factories = getattr(trainer, "environment_factories", None) or {}
        for ending in (
            getattr(trainer, "_own_dispatcher", None),
            getattr(trainer, "_environment_rewards", None),
            *factories.values(),
        ):
            if hasattr(ending, "close"):
                ending.close()
        for name in ("async_loop", "async_reward_loop"):
            loop = getattr(trainer, name, None)
            if loop is not None:
                shutdown_event_loop_in_daemon(getattr(trainer, f"{name}_thread"), loop)
                loop.close()


def rewards_of(trainer: Any) -> dict[str, list[float]]:
    """The reward columns of the last batch, as TRL got them."""
    return {name: list(values) for name, values in trainer._logs["rewards"].items()}


def last(trainer: Any, key: str) -> float:
    """The last value that a trainer logged."""
    return float([entry[key] for entry in trainer.state.log_history if key in entry][-1])


def without_times(history: list[dict[str, Any]], *, ours: bool = False) -> list[dict[str, Any]]:
    """A trainer's log less what no two runs have alike, and less our own metrics."""
    timed = ("runtime", "per_second", "step_time")
    return [
        {k: v for k, v in entry.items() if not any(word in k for word in timed) and (ours or "guerdon/" not in k)}
        for entry in history
    ]


def assert_same_entry(ours: dict[str, Any], theirs: dict[str, Any], *, rel: float = 1e-6, abs: float = 1e-6) -> None:
    """Compares entries of two logs, without the entropy: a mean over other micro-batches."""
    assert set(ours) == set(theirs)
    for key, value in theirs.items():
        if key != "entropy":
            assert ours[key] == pytest.approx(value, rel=rel, abs=abs), key


def assert_same_runs(ours: Any, plain: Any) -> None:
    """Equal logs and tables, to 1e-5; entropy and clipping are means over other micro-steps."""
    for mine, theirs in zip(without_times(ours.state.log_history), without_times(plain.state.log_history), strict=True):
        assert_same_entry(mine, theirs, abs=1e-5)
    for column in ("prompt", "completion"):
        assert list(ours._logs[column]) == list(plain._logs[column])
    assert list(ours._logs["advantages"]) == pytest.approx(list(plain._logs["advantages"]), abs=1e-5)
    assert dict(ours._logs["extra"]) == dict(plain._logs["extra"])


@contextmanager
def apart(trainer: Any) -> Iterator[None]:
    """A policy that has left its reference model, so that the KL penalty is not 0."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in trainer.ref_model.parameters() if trainer.ref_model is not None else ():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    yield
