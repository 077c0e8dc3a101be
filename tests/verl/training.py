"""Runs of verl's own trainers on a CPU. The loop, the agent loop, the reward loop, advantages,
metrics and validation are verl's; the model and the server that generates are faked
(fake_workers.py), and Ray is told that there is a GPU.
"""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
from datasets import Dataset
from transformers import Qwen2Config

from tests.verl.verl_setup import OmegaConf, make_config, make_model

with warnings.catch_warnings():  # of what verl imports
    warnings.simplefilter("ignore")
    from verl.experimental.one_step_off_policy.ray_trainer import OneStepOffRayTrainer
    from verl.single_controller.ray import RayWorkerGroup, ResourcePoolManager
    from verl.trainer import main_ppo
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer
    from verl.trainer.ppo.utils import Role, create_rl_dataset, create_rl_sampler
    from verl.trainer.ppo.v1 import trainer_base
    from verl.utils import hf_tokenizer, transferqueue_utils
    from verl.utils.config import validate_config
    from verl.utils.dataset.rl_dataset import collate_fn
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    from tests.verl.fake_workers import Actor, Replica, TrainedBatch

__all__ = ["KINDS", "Run", "train"]


@dataclass(frozen=True)
class Kind:
    """One of verl's trainers."""

    fit: Callable[[Any], None]
    overrides: tuple[str, ...] = ()
    overlaps: bool = False


@dataclass(frozen=True)
class Run:
    """Responses that were trained on in a run, and verl's log of each step."""

    trained: list[TrainedBatch]
    log: list[dict[str, Any]]


def train(kind: str, folder: Path, patch: pytest.MonkeyPatch, *overrides: str) -> Run:
    """Two steps of 4 of 16 prompts, 4 responses each; validation of 4 prompts, 2 responses each."""
    chosen = KINDS[kind]
    model = make_model(folder / "model")
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "architectures": ["Qwen2ForCausalLM"]}
    Qwen2Config(vocab_size=300, **shape).save_pretrained(model)
    tokenizer = hf_tokenizer(str(model))
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(model)
    (folder / "seen").mkdir()
    if chosen.overlaps:
        (folder / "overlaps").touch()
    config = make_config(
        model,
        f"data.train_files={_rows(folder, 16, 'train')}",
        f"data.val_files={_rows(folder, 4, 'test')}",
        "data.train_batch_size=4",
        "data.val_batch_size=4",
        "data.max_prompt_length=32",
        "data.max_response_length=8",
        "data.dataloader_num_workers=0",
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.rollout.name=vllm",
        "actor_rollout_ref.rollout.n_gpus_per_node=1",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        "actor_rollout_ref.rollout.agent.num_workers=1",
        "actor_rollout_ref.rollout.val_kwargs.n=2",
        "actor_rollout_ref.rollout.val_kwargs.do_sample=true",
        "trainer.n_gpus_per_node=1",
        "trainer.nnodes=1",
        "trainer.logger=[file]",
        "trainer.total_training_steps=2",
        "trainer.val_before_train=false",
        "trainer.test_freq=2",
        "trainer.save_freq=-1",
        "trainer.resume_mode=disable",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        f"trainer.default_local_dir={folder / 'out'}",
        *chosen.overrides,
        *overrides,
        workers=1,
    )
    OmegaConf.resolve(config)
    patch.setenv("VERL_FILE_LOGGER_PATH", str(folder / "log.jsonl"))
    RolloutReplicaRegistry.register("vllm", lambda: Replica)
    patch.setattr(trainer_base, "ActorRolloutRefWorker", Actor)
    # Not what an earlier run in this process has left
    patch.setattr(transferqueue_utils, "TQ_INITIALIZED", False)
    validate_config(config=config, use_reference_policy=False, use_critic=False)
    chosen.fit(config)
    return Run(
        [TrainedBatch(**row) for row in _lines(folder / "trained.jsonl")],
        [row["data"] for row in _lines(folder / "log.jsonl")],
    )


def _in_version_1(config: Any) -> None:
    """Runs it as ``verl.trainer.main_ppo`` does, but in this process."""
    runner = main_ppo.TaskRunnerV1.__ray_metadata__.modified_class()
    runner.run(config)


def _in_version_0(config: Any) -> None:
    _made(RayPPOTrainer, Role.ActorRollout, config).fit()


def _one_step_off(config: Any) -> None:
    asyncio.run(_made(OneStepOffRayTrainer, Role.Actor, config).fit())


def _made(kind: Any, role: Role, config: Any) -> Any:
    """A trainer as the main programs of verl make it."""
    tokenizer = hf_tokenizer(str(config.actor_rollout_ref.model.path))
    train, test = (
        create_rl_dataset(files, config.data, tokenizer, None, is_train=training)
        for files, training in ((config.data.train_files, True), (config.data.val_files, False))
    )
    trainer = kind(
        config=config,
        tokenizer=tokenizer,
        role_worker_mapping={role: ray.remote(Actor)},
        resource_pool_manager=ResourcePoolManager(resource_pool_spec={"pool": [1]}, mapping={role: "pool"}),
        ray_worker_group_cls=RayWorkerGroup,
        train_dataset=train,
        val_dataset=test,
        collate_fn=collate_fn,
        train_sampler=create_rl_sampler(config.data, train),
    )
    trainer.init_workers()
    return trainer


KINDS = {
    "sync": Kind(_in_version_1),
    "colocate_async": Kind(_in_version_1, ("trainer.v1.trainer_mode=colocate_async",), overlaps=True),
    "version 0": Kind(_in_version_0, ("trainer.use_v1=false",)),
    # Its own configuration, but for the weights, which travel by NCCL there. It fails with a
    # `rollout_data_dir`, so it has none.
    "one step off": Kind(
        _one_step_off,
        (
            "actor_rollout_ref.hybrid_engine=false",
            "actor_rollout_ref.rollout.nnodes=1",
            "actor_rollout_ref.rollout.free_cache_engine=false",
            "actor_rollout_ref.rollout.calculate_log_probs=true",
            "actor_rollout_ref.rollout.checkpoint_engine.backend=naive",
            "algorithm.rollout_correction.bypass_mode=true",
        ),
        overlaps=True,
    ),
}


def _rows(folder: Path, count: int, split: str) -> Path:
    file = folder / f"{split}.parquet"
    rows = [
        {
            "prompt": [{"role": "user", "content": f"{split} {index}"}],
            "data_source": "test",
            "reward_model": {"style": "rule", "ground_truth": str(index)},
            "extra_info": {"index": index, "split": split, "log": str(folder / "seen" / f"{split}-{index}")},
        }
        for index in range(count)
    ]
    Dataset.from_list(rows).to_parquet(file)
    return file


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]
