"""Runs on one rank whose completions come from a server that rank 0 asks: a stand-in here, and a
real one in tests/vllm."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guerdon import Dispatcher, GuerdonWarning, group_reward, reward
from guerdon.integrations.trl.pipeline.options import Pipeline
from tests.integrations.trl import reward_functions
from tests.parallel.two_ranks import note_collectives

SIZES: dict[str, Any] = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "num_generations": 4}
# 6 samples a rank and groups of 4: one group lies on both ranks.
SPLIT: dict[str, Any] = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2, "num_generations": 4}


def rank() -> int:
    return int(os.environ["RANK"])


@reward
async def limited(text: str, answer: str, log_extra: Any, log_metric: Any) -> dict[str, Any]:
    log_extra("text", [text])
    log_extra("scored on", [rank()])
    log_metric("letters", float(len(text)))
    await asyncio.sleep(sum(text.encode()) % 5 / 100)
    return {"score": reward_functions.share(text, "aeiou"), "answer": answer}


@group_reward(lane="asyncio")
async def place_in_group(prompts: list[Any], completions: list[Any]) -> list[float]:
    """The place of each in its group, and a whole number more if the group is not one prompt's."""
    return [float(place) + 10.0 * (len({str(prompt) for prompt in prompts}) - 1) for place in range(len(prompts))]


@reward
def in_worker(text: str, trainer_state: Any) -> float:
    return float(trainer_state.global_step)


@reward(max_failure_rate=0.1)
async def odd_fails(text: str, prompt: Any) -> float:
    if int(str(prompt).rstrip("'}]").rsplit(" ", 1)[1]) % 2:
        raise ValueError("odd")
    return 1.0


def watched(trainer: Any, dispatchers: list[Dispatcher], train: Callable[[], Any]) -> dict[str, Any]:
    """Trains, and reports what came of it."""
    report: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        started = time.monotonic()
        try:
            train()
        except Exception as error:
            report["error"] = f"{type(error).__name__}: {error}"
        report["seconds"] = time.monotonic() - started
    report["warnings"] = [str(one.message) for one in warned if issubclass(one.category, GuerdonWarning)]
    logs = trainer._logs
    report["log"] = trainer.state.log_history
    report["table"] = list(zip(map(str, logs["prompt"]), logs["completion"], strict=True))
    report["rewards"] = {name: list(values) for name, values in logs["rewards"].items()}
    report["extra"] = {name: list(values) for name, values in logs["extra"].items()}
    report["seen"] = sorted(str(row) for piece in trainer.pieces for row in piece)
    report["generated"] = trainer.generated
    report["weights"] = [float(parameter.detach().double().sum()) for parameter in trainer.model.parameters()]
    report["open"] = [one.stats().get("open_batches", 0) for one in dispatchers]
    return report


# --- the stand-in


class Server:
    """Answers like TRL's client, each request after a time of its own."""

    def __init__(self, tokenizer: Any) -> None:
        self._letters = tokenizer.convert_tokens_to_ids(list("abcdefghijklmnopqrstuvwxyz"))
        self._end = tokenizer.eos_token_id
        self._random = random.Random(5)
        self._lock = threading.Lock()

    def generate(self, prompts: Any, *, features: Any = None, n: int = 1, **_: Any) -> dict[str, Any]:
        with self._lock:
            completions = [
                [*self._random.choices(self._letters, k=self._random.randint(2, 7)), self._end]
                for _ in range(n * len(prompts))
            ]
            patience = self._random.random() / 20
        time.sleep(patience)
        return {
            "prompt_ids": list(prompts),
            "completion_ids": completions,
            "logprobs": [[[-1.0]] * len(ids) for ids in completions],
            "logprob_token_ids": None,
        }


def stand_in() -> None:
    """Puts the stand-in in the place of a server's client; all else of TRL's is TRL's."""
    from trl.generation.vllm_generation import VLLMGeneration

    def init(self: Any) -> None:
        if self.accelerator.is_main_process:
            self.vllm_client = Server(self.processing_class)

    VLLMGeneration._init_vllm = init
    VLLMGeneration.sync_weights = lambda self: None


def make(functions: Any, folder: Path, pipeline: Any, sizes: dict[str, Any], **options: Any) -> Any:
    from tests.integrations.trl.recording_trainer import make_recording_trainer

    server = {"use_vllm": True, "vllm_mode": "server", "vllm_importance_sampling_correction": False}
    settings = {"prompts": 12, "max_steps": 2, **server, **sizes, **options}
    return make_recording_trainer(functions, folder, pipeline, **settings)


class Broken:
    """A store that has gone."""

    def set(self, *_: Any) -> None:
        raise RuntimeError("no way")


FUNCTIONS = [limited, place_in_group, in_worker]


def run(folder: Path) -> dict[str, Any]:
    """The reports of all runs, by name."""
    collectives = note_collectives()
    stand_in()
    reports: dict[str, Any] = {}
    for name, pipeline, sizes in (("overlap", "overlap", SIZES), ("all", "all", SIZES), ("split", "overlap", SPLIT)):
        collectives.clear()
        with Dispatcher(FUNCTIONS, workers=1) as dispatcher:
            trainer = make(dispatcher, folder / "out", pipeline, sizes)
            reports[name] = watched(trainer, [dispatcher], trainer.train)
        reports[name]["collectives"] = list(collectives)

    with Dispatcher(FUNCTIONS, workers=1) as dispatcher:
        trainer = make(dispatcher, folder / "out", "overlap", SIZES)
        if rank() == 0:
            trainer._feed._store = Broken()
        reports["apart"] = watched(trainer, [dispatcher], trainer.train)

    with Dispatcher([limited]) as dispatcher:
        evaluates = {"evaluate": True, "per_device_eval_batch_size": 2, "max_steps": 1}
        trainer = make(dispatcher, folder / "out", "overlap", SIZES, **evaluates)
        reports["evaluated"] = watched(trainer, [dispatcher], trainer.train)

    # One has a function of the whole batch; one shares its workers with the other rank.
    mixed = [Dispatcher([limited]), Dispatcher([reward_functions.vowels, place_in_group], workers=1)]
    with mixed[0], mixed[1], Dispatcher([in_worker], cluster="host") as shared:
        trainer = make([*mixed, shared], folder / "out", Pipeline(overlap=True, mini_batch=True), SIZES)
        reports["mixed"] = watched(trainer, [*mixed, shared], trainer.train)

    with Dispatcher([limited, odd_fails]) as dispatcher:
        trainer = make(dispatcher, folder / "out", "overlap", SIZES, max_steps=8, prompts=16)
        reports["failing"] = watched(trainer, [dispatcher], trainer.train)

    saves = {"save_strategy": "steps", "save_steps": 1, "lr_scheduler_type": "constant"}
    with Dispatcher([limited]) as dispatcher:
        trainer = make(dispatcher, folder / "saved", "all", SIZES, **saves)
        reports["first"] = watched(trainer, [dispatcher], trainer.train)
        trainer = make(dispatcher, folder / "saved", "all", SIZES, **saves, max_steps=3)
        resume = str(folder / "saved" / "checkpoint-2")
        reports["resumed"] = watched(trainer, [dispatcher], lambda: trainer.train(resume_from_checkpoint=resume))
    return reports
