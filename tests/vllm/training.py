"""A run of the asynchronous trainers on the CPU, with a server that is real.

Two stand-ins, in the test's process alone: the attention kernel of TRL's packed rows needs a GPU and is written here with
PyTorch's own attention, and the peak speed of a device that has none is unknown.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # a warning at the import of what these tests are about

import peft
import pytest
import torch
from datasets import Dataset
from torch.nn.functional import scaled_dot_product_attention
from transformers import TrainerCallback
from trl.experimental import async_grpo
from trl.experimental.async_grpo import async_grpo_trainer, packing

from tests.vllm.server import Server

TRLAsyncGRPOTrainer = async_grpo.AsyncGRPOTrainer


def stand_in(patch: pytest.MonkeyPatch) -> None:
    """Puts the stand-ins in place."""
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


def make_trainer(kind: Any, server: Server, folder: Path, functions: Any, more: dict[str, Any], **options: Any) -> Any:
    """A trainer of the class `kind`, which publishes its policy as adapters.

    Args:
        more: For the trainer itself; `options` are the config's.
    """
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "vllm_server_base_url": server.url,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "max_steps": 6,
        "learning_rate": 1e-2,
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "max_completion_length": 8,
        "max_staleness": 3,
        "token_budget": 0,
        "request_timeout": 120,
    }
    settings.update(options)
    return kind(
        str(server.model),
        functions,
        async_grpo.AsyncGRPOConfig(**settings),
        make_data(16),
        peft_config=peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
        **more,
    )


class _AtStep(TrainerCallback):
    def __init__(self, step: int, do: Callable[[], None]) -> None:
        self._step = step
        self._do = do

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        if state.global_step == self._step:
            self._do()


def at_step(step: int, do: Callable[[], None]) -> TrainerCallback:
    """Calls `do` at the end of one step."""
    return _AtStep(step, do)
