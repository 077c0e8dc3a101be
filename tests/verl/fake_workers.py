"""Stand-ins for a GPU in the runs of verl's trainers (training.py): the model that is trained, and
the server that generates.

- The server answers a prompt, time after time, with two letters, three, four and one, in turn.
- The actor has no weights. It writes down what it is given to train on (`TrainedBatch`).
- The actor's first update, if the trainer generates while it trains, waits until a reward
  function has seen responses that are not yet trained on.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ray
import torch
from tensordict import TensorDict
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import hf_tokenizer
from verl.utils import tensordict_utils as tu
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

# Ray's workers import another package called tests first: TransferQueue's.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

__all__ = ["Actor", "Replica", "TrainedBatch"]

ACTOR = make_nd_compute_dataproto_dispatch_fn(mesh_name="actor")
PATIENCE_S = 300.0


@dataclass(frozen=True)
class TrainedBatch:
    """One response as the actor was given it."""

    step: int
    ground_truth: str
    letters: int
    reward: float
    advantage: float
    status: str


class Actor(Worker):
    """Replaces the model and its optimiser."""

    def __init__(self, config: Any, role: str, **named: Any) -> None:
        super().__init__()
        self._register_dispatch_collect_info(mesh_name="actor", dp_rank=0, is_collect=True)
        self._folder = Path(config.model.path).parent
        self._step = 0

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        pass

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> None:
        pass

    @register(dispatch_mode=ACTOR)
    def compute_log_prob(self, data: TensorDict) -> TensorDict:
        ids = data["input_ids"]
        zeros = torch.nested.nested_tensor_from_jagged(torch.zeros(ids.values().shape[0]), ids.offsets())
        return tu.get_tensordict({"log_probs": zeros, "entropy": zeros.clone()}, {"metrics": {"mfu": 0.0}}).cpu()

    @register(dispatch_mode=ACTOR)
    def update_actor(self, data: TensorDict) -> TensorDict:
        self._step += 1
        rows = _rows(data, self._step)
        with (self._folder / "trained.jsonl").open("a") as file:
            file.writelines(f"{json.dumps(asdict(row))}\n" for row in rows)
        if self._step == 1 and (self._folder / "overlaps").exists():
            own = {f"train-{row.ground_truth}" for row in rows}
            deadline = time.monotonic() + PATIENCE_S
            while not {file.name for file in (self._folder / "seen").iterdir()} - own:
                assert time.monotonic() < deadline, "no reward function has seen the next responses"
                time.sleep(0.05)
        return tu.get_tensordict({}, {"metrics": {"mfu": 0.0, "loss": 0.0}}).cpu()


def _rows(data: TensorDict, step: int) -> list[TrainedBatch]:
    """The responses of a batch; version 1 keeps extra info in ``extra_fields``."""
    if "guerdon_status" in data.keys():  # noqa: SIM118 # a TensorDict's `in` is not about keys
        states = list(data["guerdon_status"])
    else:
        states = [fields["reward_extra_info"]["guerdon_status"] for fields in data["extra_fields"]]
    names = ("response_mask", "rm_scores", "advantages")
    tensors = [data[name].unbind() for name in names]
    return [
        TrainedBatch(
            step, model["ground_truth"], int(mask.sum()) - 1, float(scores.sum()), float(advantages[0]), str(state)
        )
        for model, state, mask, scores, advantages in zip(data["reward_model"], states, *tensors, strict=True)
    ]


class Server:
    """Replaces an inference server."""

    def __init__(self, path: str) -> None:
        self._tokenizer = hf_tokenizer(path)
        self._answered: Counter[tuple[int, ...]] = Counter()

    async def generate(self, request_id: str, prompt_ids: list[int], sampling_params: Any, **named: Any) -> TokenOutput:
        prompt = tuple(prompt_ids)
        self._answered[prompt] += 1
        ids = self._tokenizer("a" * (self._answered[prompt] % 4 + 1))["input_ids"] + [self._tokenizer.eos_token_id]
        return TokenOutput(
            token_ids=ids, log_probs=[0.0] * len(ids), stop_reason="completed", extra_fields={"global_steps": 0}
        )

    async def wake_up(self) -> None:
        pass

    async def sleep(self) -> None:
        pass

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        pass

    async def resume_generation(self) -> None:
        pass


class Replica(RolloutReplica):
    """verl's handle of one `Server`."""

    async def init_standalone(self) -> None:
        await self.launch_servers()

    async def launch_servers(self) -> None:
        self._server_handle = ray.remote(Server).options(num_cpus=0).remote(self.model_config.path)
        self._server_address = "nowhere"
        self.servers = [self._server_handle]
