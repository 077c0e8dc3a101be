"""One rank of a run under DDP, FSDP2 and DeepSpeed in turn; started by torchrun from the tests.

Usage: python -m tests.parallel.two_ranks KINDS FOLDER, with KINDS like ``ddp,zero2``.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from guerdon import Dispatcher
from guerdon.integrations.trl.patching import patched
from tests.integrations.trl import reward_functions

KINDS = ("ddp", "fsdp2", "zero2", "zero3")
MODES: dict[str, Any] = {
    "off": "off",
    "overlap and mini_batch": {"overlap": True, "mini_batch": True},
    "one_step": "one_step",
    "all": "all",
}
SIZES: dict[str, Any] = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "num_generations": 4,
    "prompts": 16,
    "max_steps": 2,
    "ends": 16,
    "beta": 0.0,
    "optim": "sgd",
    "learning_rate": 0.5,
    "lr_scheduler_type": "constant",
    "max_grad_norm": 1e9,  # reported, not clipped
}


def zero(stage: int) -> dict[str, Any]:
    return {
        "zero_optimization": {
            "stage": stage,
            "stage3_param_persistence_threshold": 0,
            "stage3_gather_16bit_weights_on_model_save": True,
            "overlap_comm": False,
        },
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
    }


@contextmanager
def sharded(kind: str) -> Iterator[dict[str, Any]]:
    """Options of a trainer's config for this kind of parallelism.

    accelerate shards on accelerators only: its state is told here that it has one.
    """
    if kind == "ddp":
        yield {}
        return
    from accelerate.state import AcceleratorState, DistributedType, PartialState

    if kind == "fsdp2":
        init = AcceleratorState.__init__

        def sharding(self: Any, *args: Any, **named: Any) -> None:
            if named.get("fsdp_plugin") is not None:
                PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
            init(self, *args, **named)

        wrap = {"transformer_layer_cls_to_wrap": ["Qwen2DecoderLayer"]}
        with patched(AcceleratorState, {"__init__": sharding}):
            yield {"fsdp": True, "fsdp_config": {"version": 2, **wrap}}
        return
    import deepspeed

    # DeepSpeed would compile the CPU's collectives, for half a minute.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False

    def backend(self: Any, *args: Any) -> tuple[str, DistributedType]:
        return "gloo", DistributedType.MULTI_CPU

    with patched(PartialState, {"_prepare_backend": backend}):
        yield {"use_cpu": False, "deepspeed": zero(int(kind[-1]))}


COLLECTIVES = """
all_gather all_gather_into_tensor all_gather_object all_reduce all_to_all_single barrier broadcast broadcast_object_list
gather_object reduce reduce_scatter reduce_scatter_tensor
"""


def note_collectives() -> list[str]:
    """Notes each collective that Python calls, with its tensors' sizes: the same on every rank."""
    import torch
    import torch.distributed as dist

    noted: list[str] = []

    def noting(name: str) -> Any:
        collective = getattr(dist, name)

        def call(*args: Any, **named: Any) -> Any:
            sizes = [one.numel() for one in (*args, *named.values()) if isinstance(one, torch.Tensor)]
            noted.append(f"{name} {sizes}")
            return collective(*args, **named)

        return call

    for name in COLLECTIVES.split():
        setattr(dist, name, noting(name))
    return noted


def run(kind: str, mode: str, folder: Path, collectives: list[str]) -> dict[str, Any]:
    from guerdon.integrations.trl import Pipeline
    from tests.integrations.trl.recording_trainer import make_recording_trainer
    from tests.integrations.trl.tiny_trainer import end_loops, without_times

    pipeline = MODES[mode] if isinstance(MODES[mode], str) else Pipeline(**MODES[mode])
    report: dict[str, Any] = {}
    started = time.monotonic()
    collectives.clear()
    with (
        sharded(kind) as options,
        Dispatcher([reward_functions.vowels, reward_functions.waiting], workers=1) as dispatcher,
    ):
        trainer = make_recording_trainer(dispatcher, folder / "out", pipeline, **{**SIZES, **options})
        trainer.train()
        report["wrapped"] = type(trainer.model_wrapped).__name__
        report["log"] = without_times(trainer.state.log_history)
        report["early"] = [entry.get("guerdon/pipeline/early_frac") for entry in trainer.state.log_history]
        report["generated"] = trainer.generated
        report["seen"] = sorted(row for piece in trainer.pieces for row in piece)
        report["ratios"] = trainer.ratios
        report["rewards"] = {column: list(values) for column, values in trainer._logs["rewards"].items()}
        report["advantages"] = list(trainer._logs["advantages"])
        report["weights"] = [float(value.double().sum()) for value in whole(trainer)]
        report["collectives"] = list(collectives)
        report["open"] = dispatcher.stats()["open_batches"]
    end_loops()
    del trainer
    gc.collect()
    report["seconds"] = time.monotonic() - started
    return report


def whole(trainer: Any) -> list[Any]:
    """The parameters, none of them sharded; sharded ones are given to the first rank alone."""
    state = trainer.accelerator.get_state_dict(trainer.model_wrapped) or {}
    return [state[name].float() for name in sorted(state)]


def main(kinds: str, folder: Path) -> None:
    collectives = note_collectives()
    reports = {kind: {mode: run(kind, mode, folder, collectives) for mode in MODES} for kind in kinds.split(",")}
    (folder / f"rank{os.environ['RANK']}.json").write_text(json.dumps(reports))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
