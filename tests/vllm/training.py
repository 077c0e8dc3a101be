"""Runs of the trainers on the CPU, with a server that is real.

The asynchronous ones have two fakes, in the test's process alone: the attention kernel of TRL's
packed rows needs a GPU and is written here with PyTorch's own attention, and the peak speed of a
device that has none is unknown. The synchronous one sends no weights, which needs NCCL: at
learning rate 0 the server's are the trainer's throughout.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# A warning at the import of what these tests are about
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import peft
import pytest
import torch
import trl
from datasets import Dataset
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoTokenizer, Qwen2ForCausalLM
from trl.experimental import async_grpo
from trl.experimental.async_grpo import async_grpo_trainer, packing
from trl.generation.vllm_client import VLLMClient
from trl.generation.vllm_generation import VLLMGeneration

from tests.vllm.server import Server

TRLAsyncGRPOTrainer = async_grpo.AsyncGRPOTrainer


def stand_in(patch: pytest.MonkeyPatch) -> None:
    kernels = SimpleNamespace(flash_attn_varlen_func=attention)
    patch.setattr(packing, "_flash_attn", lambda: kernels)
    patch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    *_: Any,
    softmax_scale: float | None = None,
    **__: Any,
) -> torch.Tensor:
    """Causal attention within each stretch of rows; a query's last row sees its keys' last."""
    parts = []
    repeats = query.shape[1] // key.shape[1]
    for index in range(len(cu_seqlens_q) - 1):
        q = query[cu_seqlens_q[index] : cu_seqlens_q[index + 1]].transpose(0, 1)
        k, v = (
            each[cu_seqlens_k[index] : cu_seqlens_k[index + 1]].transpose(0, 1).repeat_interleave(repeats, 0)
            for each in (key, value)
        )
        mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
        parts.append(scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=softmax_scale).transpose(0, 1))
    return torch.cat(parts)


def make_data(rows: int) -> Dataset:
    prompts = [[{"role": "user", "content": f"say {index}"}] for index in range(rows)]
    return Dataset.from_dict({"prompt": prompts, "answer": ["aeiou"[index % 5] for index in range(rows)]})


def steps_of(trainer: Any) -> list[dict[str, Any]]:
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def settings_of(server: Server, folder: Path) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "vllm_server_base_url": server.url,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "num_generations": 4,
    }


def make_trainer(
    kind: Any,
    server: Server,
    folder: Path,
    functions: Any,
    more: dict[str, Any],
    *,
    data: Dataset | None = None,
    **options: Any,
) -> Any:
    """An asynchronous trainer of the class `kind`, which publishes its policy as adapters.

    Args:
        more: For the trainer itself; `options` are the config's.
    """
    settings: dict[str, Any] = {
        **settings_of(server, folder),
        "max_steps": 6,
        "learning_rate": 1e-2,
        "per_device_train_batch_size": 8,
        "max_completion_length": 8,
        "max_staleness": 3,
        "token_budget": 0,
        "request_timeout": 120,
        **options,
    }
    return kind(
        str(server.model),
        functions,
        async_grpo.AsyncGRPOConfig(**settings),
        make_data(16) if data is None else data,
        peft_config=peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"),
        **more,
    )


def make_server_trainer(
    kind: Any,
    functions: Any,
    folder: Path,
    server: Server,
    patch: pytest.MonkeyPatch,
    more: dict[str, Any],
    data: Dataset,
    **options: Any,
) -> Any:
    """A synchronous trainer of the class `kind`, whose completions come from the server.

    Args:
        more: For the trainer itself; `options` are the config's.
    """
    patch.setattr(VLLMClient, "init_communicator", lambda self, device: None)
    patch.setattr(VLLMGeneration, "sync_weights", lambda self: None)
    settings: dict[str, Any] = {
        **settings_of(server, folder),
        "logging_steps": 1,
        "max_steps": 2,
        "learning_rate": 0.0,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 4,
        "use_vllm": True,
        "vllm_mode": "server",
        "vllm_server_timeout": 30,
        **options,
    }
    return kind(
        Qwen2ForCausalLM.from_pretrained(server.model),
        functions,
        trl.GRPOConfig(**settings),
        data,
        processing_class=AutoTokenizer.from_pretrained(server.model),
        **more,
    )
