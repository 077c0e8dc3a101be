"""Trains a small model on the alphabet with TRL's GRPOTrainer, its rewards through Guerdon.

    python examples/demo.py              # about a minute on two cores
    python examples/demo.py --serial     # without Guerdon: TRL calls one function after another

The model (75,000 parameters, random weights) and the data are made here, nothing is downloaded.
Four reward functions:

- counts_on   sync       is each letter the one that follows? 3 ms, as a symbolic comparison would
- judge       async      is the length right? A slow judge answers in 50 to 150 ms a sample
- standing    per group  how does it compare with the other completions of the prompt?
- parses      sync       is it well-formed? On one sample in fifty its regular expression never ends
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import random
import re
import signal
import statistics
import tempfile
import time
import warnings
import zlib
from collections import Counter
from pathlib import Path

from guerdon import Dispatcher, group_reward, read_journal, reward

LETTERS = "abcdefgh"
LENGTH = 3
WEIGHTS = [1.0, 0.5, 0.25, 0.25]
HANG_TIMEOUT_S = 0.3
GENERATIONS = 8  # completions of one prompt: a group
SAMPLES = 64  # completions of a step
OUT = Path("demo-out")


def follows(letter: str) -> str:
    return LETTERS[(LETTERS.index(letter) + 1) % len(LETTERS)]


def right_steps(prompt: str, completion: str) -> int:
    """Counts the letters at the beginning that each follow the letter before in the alphabet."""
    return sum(
        follows(before) == after for before, after in zip(prompt + completion, completion[:LENGTH], strict=False)
    )


@reward(timeout=5)
def counts_on(prompt: str, completion: str) -> float:
    end = time.thread_time() + 0.003
    while time.thread_time() < end:
        pass
    return right_steps(prompt, completion) / LENGTH


@reward(timeout=5)
async def judge(prompt: str, completion: str) -> float:
    await asyncio.sleep(0.05 + zlib.crc32((prompt + completion).encode()) % 100 / 1000)
    return 1 - abs(len(completion) - LENGTH) / LENGTH


@group_reward
def standing(prompts: list[str], completions: list[str]) -> list[float]:
    scores = [right_steps(prompt, completion) for prompt, completion in zip(prompts, completions, strict=True)]
    return [sum(score >= other for other in scores) / len(scores) for score in scores]


@reward(timeout=HANG_TIMEOUT_S, grace=0.1)
def parses(prompt: str, completion: str, trainer_state) -> float:
    if zlib.crc32(f"{trainer_state.global_step} {prompt} {completion}".encode()) % 50 == 0:
        re.fullmatch("(a+)+b", "a" * 60)  # 2**60 ways to fail, and the GIL is held for all of them
    return float(0 < len(completion) == len(set(completion)))


# ---- the same functions for TRL alone: each gets all samples of a step, one after another ----


def serial_functions(seconds: dict[str, float]) -> list:
    def counts_on_all(prompts, completions, **columns):
        with clock("counts_on"):
            return [counts_on(prompt, completion) for prompt, completion in zip(prompts, completions, strict=True)]

    async def judge_all(prompts, completions, **columns):
        with clock("judge"):
            return await asyncio.gather(*map(judge, prompts, completions))

    def standing_all(prompts, completions, **columns):
        with clock("standing"):
            groups = [slice(i, i + GENERATIONS) for i in range(0, len(prompts), GENERATIONS)]
            return [value for group in groups for value in standing(prompts[group], completions[group])]

    def parses_all(prompts, completions, trainer_state, **columns):
        with clock("parses"):
            return [
                bounded(HANG_TIMEOUT_S, parses, prompt, completion, trainer_state)
                for prompt, completion in zip(prompts, completions, strict=True)
            ]

    @contextlib.contextmanager
    def clock(name):
        start = time.perf_counter()
        yield
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start

    functions = [counts_on_all, judge_all, standing_all, parses_all]
    for function in functions:
        function.__name__ = function.__name__.removesuffix("_all")  # the name that TRL logs
    return functions


def bounded(timeout: float, function, *arguments):
    """Returns the function's result, or None if it takes too long: the first hang would stop
    training.

    It works only in the main thread, and not for C code that never checks for signals.
    """

    def give_up(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, timeout)
    try:
        return function(*arguments)
    except TimeoutError:
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---- model, data, training ----


def make_model():
    """Two layers of Qwen2 with random weights, and a tokenizer of one letter a token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    vocabulary = {token: index for index, token in enumerate(["<pad>", "<eos>", *LETTERS])}
    letters = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    letters.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=letters, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )
    config = Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=vocabulary["<eos>"],
        pad_token_id=vocabulary["<pad>"],
    )
    return Qwen2ForCausalLM(config), tokenizer


def train(reward_functions: list, *, steps: int, seed: int, show) -> list[dict[str, float]]:
    """Run TRL's trainer, and return its log, step by step."""
    import torch
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback, set_seed
    from trl import GRPOConfig, GRPOTrainer

    logging.getLogger("trl").setLevel(logging.ERROR)  # it warns of each failed sample
    torch.set_num_threads(1)
    set_seed(seed)
    model, tokenizer = make_model()
    draw = random.Random(seed)
    logs: list[dict[str, float]] = []

    class Log(TrainerCallback):
        def on_log(self, args, state, control, logs: dict[str, float], _all=logs, **_):
            if "reward" in logs:
                _all.append(logs)
                if len(_all) % max(1, steps // 10) == 0:
                    show(f"  step {len(_all):>3} of {steps}   reward {logs['reward']:.3f}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=reward_functions,
            train_dataset=Dataset.from_list([{"prompt": draw.choice(LETTERS)} for _ in range(2000)]),
            args=GRPOConfig(
                output_dir=str(OUT),
                per_device_train_batch_size=SAMPLES,
                num_generations=GENERATIONS,
                max_completion_length=2 * LENGTH,
                learning_rate=3e-3,
                lr_scheduler_type="constant",
                reward_weights=WEIGHTS,
                max_steps=steps,
                logging_steps=1,
                seed=seed,
                save_strategy="no",
                report_to=[],
                use_cpu=True,
                disable_tqdm=True,
                dataloader_pin_memory=False,
                log_level="error",
            ),
            callbacks=[Log()],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return logs


# ---- results ----


def rise(logs: list[dict[str, float]]) -> tuple[float, float, int]:
    """Mean reward of the first and of the last tenth of the steps, and how many steps that is."""
    part = max(1, len(logs) // 10)
    rewards = [log["reward"] for log in logs]
    return sum(rewards[:part]) / part, sum(rewards[-part:]) / part, part


def run_engine(options: argparse.Namespace, show) -> dict:
    """Train with all four functions in one dispatcher, whose journal has every call."""
    functions = [counts_on, judge, standing, parses]
    with tempfile.TemporaryDirectory() as folder:
        with Dispatcher(functions, weights=WEIGHTS, journal=folder) as dispatcher:
            show(f"GRPO, {options.steps} steps of {SAMPLES} completions; {dispatcher!r}")
            start = time.perf_counter()
            logs = train(dispatcher.reward_funcs, steps=options.steps, seed=options.seed, show=show)
            wall = time.perf_counter() - start
        columns = ["function", "batch", "group", "sample", "status", "reason", "value", "queue_s", "run_s"]
        rows = read_journal(folder, columns=columns).to_pylist()
    show(f"\n{table(rows)}\n\nwhat failed, and why\n{failures(rows) or 'nothing'}\n")
    return {"logs": logs, "wall": wall, "times": step_times(rows)}


def by_function(rows: list[dict]) -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {}
    for row in sorted(rows, key=lambda row: (row["batch"], row["sample"])):
        found.setdefault(row["function"], []).append(row)
    return found


def table(rows: list[dict]) -> str:
    lines = [f"{'function':<12}{'samples':>8}{'failed':>8}{'mean':>8}{'p50':>10}{'longest':>10}"]
    for name, mine in by_function(rows).items():
        values = [row["value"] for row in mine if row["value"] is not None]
        ran = [1000 * row["run_s"] for row in mine]
        lines.append(
            f"{name:<12}{len(mine):>8}{len(mine) - len(values):>8}{statistics.mean(values):>8.3f}"
            f"{statistics.median(ran):>7.1f} ms{max(ran):>7.1f} ms"
        )
    return "\n".join(lines)


def failures(rows: list[dict]) -> str:
    lines = []
    for name, mine in by_function(rows).items():
        failed = [(place, row) for place, row in enumerate(mine) if row["status"] != "ok"]
        lines += [f"{name}: {len(failed)} of {len(mine)} failed"] if failed else []
        for status, count in Counter(row["status"] for _, row in failed).most_common():
            first, row = next(each for each in failed if each[1]["status"] == status)
            lines.append(f"  {count} {status}, first sample {first}: {row['reason']}")
    return "\n".join(lines)


def step_times(rows: list[dict]) -> dict[str, float]:
    """Seconds of all steps; TRL runs functions in turn, and the samples of an async one at once."""
    through, in_turn, one_by_one = Counter(), Counter(), Counter()
    for row in rows:
        step, name = row["batch"], row["function"]
        through[step] = max(through[step], row["queue_s"] + row["run_s"])
        # The samples of a group share a call.
        seconds = row["run_s"] / (GENERATIONS if name == "standing" else 1)
        one_by_one[step, name] += seconds
        in_turn[step, name] = max(in_turn[step, name], seconds) if name == "judge" else one_by_one[step, name]
    return {
        "through Guerdon": sum(through.values()),
        "function after function, estimated": sum(in_turn.values()),
        "call after call, estimated": sum(one_by_one.values()),
    }


def run_serial(options: argparse.Namespace, show) -> dict:
    """Train with TRL alone."""
    seconds: dict[str, float] = {}
    show(f"GRPO, {options.steps} steps of {SAMPLES} completions; TRL alone")
    start = time.perf_counter()
    logs = train(serial_functions(seconds), steps=options.steps, seed=options.seed, show=show)
    wall = time.perf_counter() - start
    show("\nseconds in each function: " + ", ".join(f"{name} {took:.1f}" for name, took in seconds.items()) + "\n")
    return {"logs": logs, "wall": wall, "times": {"TRL alone": sum(seconds.values())}}


def main(arguments: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--serial", action="store_true", help="without Guerdon: TRL calls one function after another")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the picture, default {OUT}")
    options = parser.parse_args(arguments)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")

    def show(text: str) -> None:
        print(text, flush=True)

    outcome = (run_serial if options.serial else run_engine)(options, show)
    logs, times = outcome["logs"], outcome["times"]
    first, last, part = rise(logs)
    here, seconds = next(iter(times.items()))
    show(f"mean reward     {first:.3f} in the first {part} steps, {last:.3f} in the last {part}")
    show(f"whole run       {outcome['wall']:.1f} s")
    show(f"in rewards      {seconds:.1f} s {here}")
    for other, longer in list(times.items())[1:]:
        show(f"                {longer:.1f} s {other}: {longer / seconds:.1f} times as long")
    if not options.serial:
        show(
            "                (estimated from the run times of these calls; --serial trains with TRL alone and measures it)"
        )
        show(f"picture         {picture(options.out, logs, times)}")
    return {"first": first, "last": last, **outcome}


def picture(folder: Path, logs: list[dict[str, float]], times: dict[str, float]) -> Path:
    """Draw the run, and return the name of the file."""
    from demo_picture import draw

    names = ["counts_on", "judge", "standing", "parses"]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "demo.png"
    rewards = {name: [log[f"rewards/{name}/mean"] for log in logs] for name in names}
    draw(path, rewards, [log["reward"] for log in logs], times)
    return path


if __name__ == "__main__":
    main()
