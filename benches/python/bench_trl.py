"""Cost of the reward functions of one GRPO step in TRL's unmodified trainer: alone, and through
Guerdon.

    python -m pytest benches/python/bench_trl.py --benchmark-only

Timed is the trainer's own ``_calculate_rewards``, with 256 samples:

- three_waits    two sync functions and an async one, 0.5 s each
- slow_requests  a sync function that waits 5 ms for each sample (thread lane)
- math_verify    ``trl.rewards.accuracy_reward`` on GSM8K solutions (rowwise: each sample has its
  deadline)
- trivial        a sync function of a microsecond a sample: what going through Guerdon costs
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from guerdon import Dispatcher, reward
from tests.shared_data import gsm8k_solutions

trl = pytest.importorskip("trl")

SAMPLES, GENERATIONS = 256, 8


def first_wait(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
    time.sleep(0.5)
    return [1.0] * len(completions)


def second_wait(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
    time.sleep(0.5)
    return [1.0] * len(completions)


async def async_wait(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
    await asyncio.sleep(0.5)
    return [1.0] * len(completions)


def request(completion: Any) -> float:
    time.sleep(0.005)
    return 1.0


def requests(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
    return [request(completion) for completion in completions]


def one(completion: Any) -> float:
    return 1.0


def ones(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
    return [one(completion) for completion in completions]


def accuracy() -> Callable[..., Any]:
    from trl.rewards import accuracy_reward

    return accuracy_reward


# Functions of each workload, in the form for TRL alone and in the form for a dispatcher.
WORKLOADS: dict[str, tuple[Callable[[], list[Any]], Callable[[], list[Any]]]] = {
    "three_waits": (lambda: [first_wait, second_wait, async_wait], lambda: [first_wait, second_wait, async_wait]),
    "slow_requests": (lambda: [requests], lambda: [reward(request, lane="thread")]),
    "math_verify": (lambda: [accuracy()], lambda: [reward(accuracy(), rowwise=True, timeout=5)]),
    "trivial": (lambda: [ones], lambda: [reward(one)]),
}


def samples() -> list[dict[str, Any]]:
    return [
        {
            "prompt": [{"role": "user", "content": row["prompt"]}],
            "completion": [
                {"role": "assistant", "content": "$\\boxed{" + str(row["completion"]).rpartition("A: ")[2] + "}$"}
            ],
            "solution": "$" + str(row["reference"]).rpartition("A: ")[2] + "$",
        }
        for row in gsm8k_solutions()
    ]


def batches() -> Iterator[list[dict[str, Any]]]:
    rows = samples()
    for start in range(0, len(rows), SAMPLES):
        yield rows[start : start + SAMPLES]


def make_trainer(functions: list[Any], folder: Path) -> Any:
    """A trainer of the demo's small model."""
    from datasets import Dataset

    path = Path(__file__).parents[2] / "examples" / "demo.py"
    spec = importlib.util.spec_from_file_location("guerdon_demo", path)
    assert spec is not None
    assert spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    model, tokenizer = demo.make_model()
    arguments = trl.GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=SAMPLES,
        num_generations=GENERATIONS,
        max_completion_length=4,
        use_cpu=True,
        report_to=[],
    )
    data = Dataset.from_list([{"prompt": "a"}] * SAMPLES)
    return trl.GRPOTrainer(
        model=model, processing_class=tokenizer, reward_funcs=functions, args=arguments, train_dataset=data
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("workload", WORKLOADS)
class TestTrl:
    def test_alone(self, benchmark: Any, workload: str, tmp_path: Path) -> None:
        self.measure(benchmark, workload, WORKLOADS[workload][0](), tmp_path)

    def test_guerdon(self, benchmark: Any, workload: str, tmp_path: Path) -> None:
        with Dispatcher(WORKLOADS[workload][1](), workers=2) as dispatcher:
            self.measure(benchmark, workload, dispatcher.reward_funcs, tmp_path)

    def measure(self, benchmark: Any, workload: str, functions: list[Any], folder: Path) -> None:
        benchmark.group = f"one step of TRL: {workload}"
        trainer, steps = make_trainer(functions, folder), batches()

        def next_step() -> Any:
            # Other samples in each round, as in training: sympy caches simplified expressions.
            rows = next(steps)
            inputs = [{"prompt": row["prompt"], "solution": row["solution"]} for row in rows]
            prompts, completions = [row["prompt"] for row in rows], [row["completion"] for row in rows]
            return (inputs, prompts, completions, [[1]] * SAMPLES), {}

        values = benchmark.pedantic(trainer._calculate_rewards, setup=next_step, rounds=10, warmup_rounds=2)
        assert values.shape == (SAMPLES, len(functions))
        assert not values.isnan().any()
