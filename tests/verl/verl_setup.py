"""verl's configuration, tokenizer and data as a user has them, small and made here."""

from __future__ import annotations

import copy
import os

# Nothing is looked up; read when the libraries are imported
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tests.verl import rewards

with warnings.catch_warnings():  # of what verl and Ray import
    warnings.simplefilter("ignore")
    import verl
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.experimental.reward_loop import reward_loop as reward_loop

WIDTH = 24
"""Tokens, one a byte, of a prompt and of a response."""


def make_model(folder: Path) -> Path:
    """A folder with a tokenizer of bytes, which is all of a model that the reward loop reads."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([], trainers.BpeTrainer(special_tokens=["<pad>", "<eos>"], initial_alphabet=alphabet))
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>")
    made.save_pretrained(folder)
    return folder


def make_config(model: Path, *overrides: str, workers: int = 2) -> Any:
    """verl's configuration as its command line makes it; our manager by configuration alone."""
    with initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
        return compose(
            "ppo_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={model}",
                "actor_rollout_ref.rollout.n=4",
                "data.train_batch_size=8",
                f"reward.num_workers={workers}",
                "reward.reward_manager.source=importlib",
                "reward.reward_manager.name=RewardManager",
                "reward.reward_manager.module.path=pkg://guerdon.integrations.verl",
                *overrides,
            ],
        )


def changed(config: Any, *overrides: str) -> Any:
    """A copy of a configuration with some keys changed, without hydra's second for each."""
    config = copy.deepcopy(config)
    for override in overrides:
        key, _, value = override.removeprefix("+").partition("=")
        OmegaConf.update(config, key, yaml.safe_load(value), force_add=True)
    return config


def make_data(tokenizer: Any, responses: list[str], *, group: int = 4, **fields: list[Any]) -> DataProto:
    """A batch with `group` responses to each prompt, one `uid`; ground truth is the number."""
    prompts, answers, masks = [], [], []
    for index, response in enumerate(responses):
        prompt = tokenizer(f"say {index // group}")["input_ids"]
        answer = tokenizer(response)["input_ids"] + [tokenizer.eos_token_id]
        prompts.append([tokenizer.pad_token_id] * (WIDTH - len(prompt)) + prompt)
        answers.append(answer + [tokenizer.pad_token_id] * (WIDTH - len(answer)))
        masks.append([0] * (WIDTH - len(prompt)) + [1] * (len(prompt) + len(answer)) + [0] * (WIDTH - len(answer)))
    tensors = {
        "prompts": torch.tensor(prompts),
        "responses": torch.tensor(answers),
        "attention_mask": torch.tensor(masks),
    }
    tensors["input_ids"] = torch.cat([tensors["prompts"], tensors["responses"]], dim=1)
    rows = range(len(responses))
    known: dict[str, list[Any]] = {
        "data_source": ["test"] * len(responses),
        "reward_model": [{"style": "rule", "ground_truth": str(index)} for index in rows],
        "extra_info": [{"index": index, "split": "train"} for index in rows],
        "uid": [f"prompt-{index // group}" for index in rows],
        **fields,
    }
    return DataProto.from_dict(tensors=tensors, non_tensors={name: objects(values) for name, values in known.items()})


def objects(values: list[Any]) -> np.ndarray:
    """An array of one object each, also where these are lists."""
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def dispatched(name: str) -> str:
    """The setting that has a dispatcher of `rewards` score."""
    return f"+reward.reward_kwargs.dispatcher={rewards.__file__}:{name}"


def scores_of(batch: DataProto) -> list[float]:
    """The reward of each response of what ``compute_rm_score`` returns."""
    return batch.batch["rm_scores"].sum(dim=1).tolist()
