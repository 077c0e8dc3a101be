"""GRPO on a GPU with vLLM, with rewards computed during generation and training.

It prints what share of a step the trainer waited for rewards.

    pip install '.[trl]' vllm
    python examples/gpu_grpo.py                         # vLLM in this process, a model made here
    python examples/gpu_grpo.py --model Qwen/Qwen2.5-0.5B-Instruct --pipeline one_step
    trl vllm-serve --model Qwen/Qwen2.5-0.5B-Instruct & # on another GPU
    python examples/gpu_grpo.py --model Qwen/Qwen2.5-0.5B-Instruct --vllm server --pipeline all
    python examples/gpu_grpo.py --compare off,one_step  # one run per mode, then a table
    python examples/gpu_grpo.py --vllm none             # a GPU without vLLM: transformers generates
    python examples/gpu_grpo.py --cpu                   # no GPU, no vLLM: shows only that it runs

The task is sums of two numbers. Two rewards: `right`, in worker processes with a timeout, and
`judge`, which waits one to four seconds as a judging model would. The model made here has random
weights and a tokenizer of characters: it shows speed, and that training runs, not the progress of a
real model. Run on one H100 with `--vllm none` (benches/README.md); with vLLM it is untested.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from guerdon import Dispatcher, reward

CHARACTERS = "0123456789+=? .,abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
PRESETS = ("off", "overlap", "mini_batch", "one_step", "all")


@reward(timeout=5)
def right(text: str, answer: str) -> float:
    return float(text.strip().split(" ")[0] == answer)


@reward(timeout=60, retries=1)
async def judge(text: str) -> float:
    await asyncio.sleep(random.uniform(1.0, 4.0))  # call your model here
    return sum(letter.isdigit() for letter in text) / max(1, len(text))


def questions(count: int) -> list[dict[str, str]]:
    chosen = random.Random(0)
    sums = [(chosen.randrange(50), chosen.randrange(50)) for _ in range(count)]
    return [{"prompt": f"{one}+{other}=", "answer": str(one + other)} for one, other in sums]


def make_model(folder: Path, *, layers: int) -> str:
    """Saves a Qwen2 with random weights and a tokenizer of characters in `folder`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    vocabulary = {token: index for index, token in enumerate(["<pad>", "<eos>", *CHARACTERS])}
    characters = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    characters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    characters.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=characters, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )
    config = Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        bos_token_id=None,
        eos_token_id=vocabulary["<eos>"],
        pad_token_id=vocabulary["<pad>"],
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def train(options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Trains; returns the time of a step and how long the trainer waited for rewards in it."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig

    from guerdon.integrations.trl import GRPOTrainer

    class Ends(TrainerCallback):
        """When each optimizer step ended."""

        def __init__(self) -> None:
            self.ends: list[float] = []

        def on_step_end(self, *_, **__) -> None:
            self.ends.append(time.perf_counter())

    ends = Ends()
    if options.cpu:
        device = {"use_cpu": True, "bf16": False}
    elif options.vllm == "none":
        device = {"bf16": True}
    else:
        device = {"bf16": True, "use_vllm": True, "vllm_mode": options.vllm, "vllm_gpu_memory_utilization": 0.3}
    with Dispatcher([right, judge], weights=[1.0, 0.2]) as dispatcher:
        trainer = GRPOTrainer(
            model=options.model or make_model(folder / "model", layers=2 if options.cpu else 12),
            reward_funcs=dispatcher,
            train_dataset=Dataset.from_list(questions(4096)),
            pipeline=options.pipeline,
            callbacks=[ends],
            args=GRPOConfig(
                output_dir=str(folder),
                per_device_train_batch_size=options.batch,
                gradient_accumulation_steps=4,
                num_generations=8,
                max_completion_length=options.tokens,
                max_steps=options.steps,
                learning_rate=1e-5,
                logging_steps=1,
                save_strategy="no",
                report_to=[],
                **device,
            ),
        )
        trainer.train()
    logs = [log for log in trainer.state.log_history if "reward" in log]
    steps = [after - before for before, after in zip(ends.ends, ends.ends[1:], strict=False)]
    steps = steps[1:-1] or steps  # the first has yet to get ahead, the last generates nothing more
    waits = [log["guerdon/pipeline/wait_s"] for log in logs][-len(steps) - 1 :]
    step, wait = statistics.mean(steps), statistics.mean(waits)
    reward_s = statistics.mean(log["guerdon/pipeline/reward_s"] for log in logs)
    return {"step_s": step, "wait_s": wait, "reward_s": reward_s, "reward": logs[-1]["reward"]}


def summary(mode: str, took: dict[str, float]) -> str:
    return (
        f"{mode:<11} step {took['step_s']:6.2f} s, of it waiting for rewards {took['wait_s']:6.2f} s "
        f"({took['wait_s'] / took['step_s']:4.0%}); rewards took {took['reward_s']:6.2f} s; last reward {took['reward']:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a name or folder; by default one is made on the spot")
    parser.add_argument("--pipeline", choices=PRESETS, default="one_step")
    parser.add_argument("--compare", help="several of them, with commas: each in a process of its own, then a table")
    parser.add_argument("--vllm", choices=("colocate", "server", "none"), default="colocate")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16, help="completions of a micro-step; a step has four of these")
    parser.add_argument("--tokens", type=int, default=128, help="of a completion, at most")
    parser.add_argument("--cpu", action="store_true", help="without GPU and vLLM")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compare:
        given = sys.argv[1:]
        place = next(index for index, each in enumerate(given) if each.startswith("--compare"))
        rest = given[:place] + given[place + (1 if "=" in given[place] else 2) :]
        lines = []
        for mode in options.compare.split(","):
            command = [sys.executable, __file__, *rest, "--pipeline", mode, "--json"]
            out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            lines.append(summary(mode, json.loads(out.splitlines()[-1])))
        print("\n".join(lines))
        return
    with tempfile.TemporaryDirectory() as folder:
        took = train(options, Path(folder))
    print(json.dumps(took) if options.json else summary(options.pipeline, took))


if __name__ == "__main__":
    main()
