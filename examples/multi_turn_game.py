"""A game of several turns: a model uses a tool to walk to a door, and is trained to find the right
side.

    python examples/multi_turn_game.py              # half a minute on two cores; --steps=2: less

Each completion plays in its own environment, which the trainer uses again for the next one.
`reset`, the tool and the rewards run concurrently; a reward gets the environment as its completion
left it. The model (random weights) is made here. One token is a whole call of the tool, and the
model can write no other tokens, so that it plays from the start.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from guerdon import Dispatcher, reward

STEPS_TO_DOOR = 3
TURNS = 2  # answers of the tool that the model may read


class Corridor:
    """A place in a corridor, and a door some steps to the right."""

    def reset(self, **row: Any) -> str:
        self.place = row["start"]
        self.door = self.place + STEPS_TO_DOOR
        self.steps = 0
        return f" You stand at {self.place}, the door is at {self.door}."

    def walk(self, way: str) -> str:
        """Walks one step.

        Args:
            way: left or right.
        """
        time.sleep(0.01)  # the world takes its time
        self.steps += 1
        self.place = min(self.place + (1 if way == "right" else -1), self.door)
        return f"You stand at {self.place}."


@reward(timeout=5)
def near(environment: Corridor) -> float:
    """1 at the door, less for each step that it is away."""
    return 1.0 - (environment.door - environment.place) / STEPS_TO_DOOR


@reward(timeout=5)
async def short(environment: Corridor) -> float:
    """Every step costs a little."""
    return -0.01 * environment.steps


def call(way: str) -> str:
    """Returns the text with which a model walks."""
    request = {"name": "walk", "arguments": {"way": way}}
    return f"<tool_call>\n{json.dumps(request)}\n</tool_call>"


def make_player() -> tuple[Any, Any, list[int]]:
    """A model, its tokenizer, and the tokens that it must not write."""
    import trl
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed

    set_seed(0)
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    pieces.train_from_iterator(
        [template], trainers.BpeTrainer(vocab_size=900, special_tokens=special, initial_alphabet=alphabet)
    )
    pieces.add_tokens([AddedToken(call(way), special=False, normalized=False) for way in ("left", "right")])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=pieces, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    tokenizer.chat_template = template
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    moves = tokenizer.convert_tokens_to_ids([call("left"), call("right")])
    allowed = {*moves, tokenizer.eos_token_id}
    return Qwen2ForCausalLM(config), tokenizer, [token for token in range(len(tokenizer)) if token not in allowed]


def train(steps: int, folder: str) -> list[dict[str, float]]:
    """Trains, and returns the log of each step."""
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOConfig

    from guerdon.integrations.trl import GRPOTrainer, environments

    model, tokenizer, never = make_player()
    starts = [random.Random(0).randrange(20) for _ in range(16)]
    rows = [{"prompt": [{"role": "user", "content": "Walk to the door."}], "start": start} for start in starts]
    corridors = environments(Corridor, timeout=5)
    with Dispatcher([near, short]) as dispatcher:
        trainer = GRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=dispatcher,
            environment_factory=corridors,
            train_dataset=Dataset.from_list(rows),
            args=GRPOConfig(
                output_dir=folder,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                max_steps=steps,
                learning_rate=2e-2,
                lr_scheduler_type="constant",
                per_device_train_batch_size=16,
                num_generations=8,
                max_completion_length=120,
                max_tool_calling_iterations=TURNS,
                generation_kwargs={"suppress_tokens": never},
                logging_steps=1,
                report_to="none",
                save_strategy="no",
                disable_tqdm=True,
            ),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    corridors.close()
    return [entry for entry in trainer.state.log_history if "reward" in entry]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=15)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # what the libraries say to each other
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        log = train(options.steps, folder)
    print("step   near   calls of the tool   seconds a call")
    for step, entry in enumerate(log, 1):
        calls, seconds = entry["tools/call_frequency"], entry["guerdon/tools/walk/run_mean_s"]
        print(f"{step:4}  {entry['rewards/near/mean']:5.2f}  {calls:18.1f}  {seconds:14.3f}")


if __name__ == "__main__":
    main()
