"""GRPO on rewards of code: a tiny model is trained to write the line that solves a task.

    python examples/code_grpo.py                # half a minute on two cores; --steps=2: less
    python examples/code_grpo.py --plain        # the reward itself, without a dispatcher

The model (random weights, made here) writes one line of a function. The reward runs the program in
a separate process, behind fences, and calls its function with each case. Two of the possible lines
are attacks instead of answers: one hangs, one ends the process with status 0; both score 0.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from guerdon import Dispatcher, code_reward

LINES = (
    "return n + 1",
    "return n * 2",
    "return n - 1",
    "return n ** 2",
    "return str(n)",
    "while True: pass",
    "import os; os._exit(0)",
    "retrun n",
)
TASKS = {"Double the number.": (lambda n: n * 2), "Square the number.": (lambda n: n**2)}


def program(text: str) -> str:
    """The function whose body the model writes; usually the last fenced block of a completion."""
    return f"def answer(n):\n    {text}\n"


def rows(count: int) -> list[dict[str, object]]:
    """Tasks with their cases; TRL passes the column on to the reward."""
    made: list[dict[str, object]] = []
    for number in range(count):
        task, right = list(TASKS.items())[number % len(TASKS)]
        cases = [{"fn": "answer", "args": [n], "expected": right(n)} for n in (0, 3, 7 + number % 5)]
        made.append({"prompt": task, "cases": cases})
    return made


def make_model():
    """A Qwen2 with random weights whose tokens are whole lines and whole tasks."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    vocabulary = {token: index for index, token in enumerate([*LINES, *TASKS, "<eos>", "<pad>"])}
    lines = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    lines.pre_tokenizer = pre_tokenizers.Split("\n", "removed")
    lines.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=lines, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )
    config = Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=vocabulary["<eos>"],
        pad_token_id=vocabulary["<pad>"],
    )
    return Qwen2ForCausalLM(config), tokenizer


def train(steps: int, folder: Path, *, plain: bool) -> list[float]:
    """The mean reward of each step."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = make_model()
    code = code_reward(extract=program, timeout=1.0)
    dispatcher = Dispatcher([code])
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=[code] if plain else dispatcher.reward_funcs,
        train_dataset=Dataset.from_list(rows(64)),
        args=GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=32,
            num_generations=16,
            max_completion_length=1,
            max_steps=steps,
            learning_rate=3e-2,
            beta=0.0,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
        ),
    )
    with dispatcher:
        trainer.train()
    code.close()
    return [log["reward"] for log in trainer.state.log_history if "reward" in log]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=25)
    options.add_argument("--plain", action="store_true", help="without a dispatcher")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rewards = train(given.steps, Path(folder), plain=given.plain)
    for step, reward in enumerate(rewards):
        print(f"step {step:3}  share of right programs {reward:.2f}")
    print(f"from {rewards[0]:.2f} to {rewards[-1]:.2f}")


if __name__ == "__main__":
    main()
