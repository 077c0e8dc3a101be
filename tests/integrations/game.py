"""A multi-turn game with state, and a trainer whose model can play it from the first step.

A token stands for a whole move, so that a model with random weights plays: it stands at a place on a line and walks, and
the row says where to. Walls stand at the goal and four places before it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is looked up or reported; read when the libraries are imported

import trl
from datasets import Dataset
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed

from tests.integrations import tiny


class Line:
    """A place on a line. `visited` is a list: a shallow copy of the game would share it."""

    def reset(self, **row: Any) -> str:
        self.goal = int(row["goal"])
        self.visited = [int(row["start"])]
        return f" {self.visited[0]}"

    def walk(self, way: str) -> str:
        """Walks one step.

        Args:
            way: left or right.
        """
        place = self.visited[-1] + (1 if way == "right" else -1)
        self.visited.append(max(self.goal - 4, min(place, self.goal)))
        return f"{self.visited[-1]}"

    @property
    def distance(self) -> int:
        return abs(self.goal - self.visited[-1])


def call(name: str, **arguments: Any) -> str:
    """What a model says to call a tool."""
    given = ", ".join(
        f'"{key}": {repr(value) if not isinstance(value, str) else chr(34) + value + chr(34)}'
        for key, value in arguments.items()
    )
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{{given}}}}}\n</tool_call>'


MOVES = (call("walk", way="left"), call("walk", way="right"))


def rows(count: int) -> Dataset:
    """Prompts with a place to start and one to go to, each row another."""
    prompt = [{"role": "user", "content": "go"}]
    return Dataset.from_list([{"prompt": prompt, "start": index, "goal": index + 2} for index in range(count)])


TURNS = 2  # of tool calls; what a model says after that is not done


def replayed(row: dict[str, Any], completion: Sequence[dict[str, Any]]) -> Line:
    """The game as one after another would have left it; the answers in the completion are compared on the way.

    A turn whose answers would not fit has been played all the same, and its answers are left out.
    """
    game = Line()
    game.reset(**row)
    answers = [message["content"] for message in completion if message["role"] == "tool"]
    said = [message.get("tool_calls") or () for message in completion if message["role"] == "assistant"]
    places = [game.walk(one["function"]["arguments"]["way"]) for calls in said[:TURNS] for one in calls]
    assert answers == places[: len(answers)]
    return game


def make_tokenizer(calls: Sequence[str]) -> PreTrainedTokenizerFast:
    """Pieces of what a chat template that TRL knows writes, and a token for each of `calls`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [template], trainers.BpeTrainer(vocab_size=900, special_tokens=tiny.SPECIAL, initial_alphabet=alphabet)
    )
    tokenizer.add_tokens([AddedToken(one, special=False, normalized=False) for one in calls])
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    made.chat_template = template
    return made


def make_player(
    kind: type[Any],
    functions: list[Any],
    folder: Path,
    *,
    calls: Sequence[str] = MOVES,
    data: Dataset | None = None,
    seed: int = 7,
    more: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """A trainer of class `kind` whose fresh model can say nothing but `calls` and the end of its turn."""
    set_seed(seed)
    tokenizer = make_tokenizer(calls)
    said = [tokenizer.convert_tokens_to_ids(one) for one in calls]
    model = Qwen2ForCausalLM(
        Qwen2Config(
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
    )
    never = [token for token in range(len(tokenizer)) if token not in said and token != tokenizer.eos_token_id]
    settings: dict[str, Any] = {
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
        "learning_rate": 1e-2,
        "beta": 0.0,
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "max_completion_length": 200,
        "max_tool_calling_iterations": TURNS,
        "generation_kwargs": {"suppress_tokens": never},
    }
    trainer = kind(
        model=model,
        processing_class=tokenizer,
        reward_funcs=functions,
        args=trl.GRPOConfig(**{**settings, **options}),
        train_dataset=rows(8) if data is None else data,
        **(more or {}),
    )
    tiny.ending(trainer)
    return trainer
