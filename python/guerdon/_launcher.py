"""How many training processes the launcher started, on this host and in all, and which cores it
gave to each.

A launcher tells its processes by environment variables. Where one launcher starts another, the
inner one counts: torchrun's and DeepSpeed's variables come before MPI's, those before Slurm's.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping

# (the variable, another one that the launcher sets too: so that a name as common as LOCAL_SIZE
# is believed only from the launcher it stands for)
_ON_HOST = (
    ("LOCAL_WORLD_SIZE", None),  # torchrun, accelerate, Ray Train
    ("LOCAL_SIZE", "LOCAL_RANK"),  # DeepSpeed
    ("OMPI_COMM_WORLD_LOCAL_SIZE", None),  # Open MPI
    ("MV2_COMM_WORLD_LOCAL_SIZE", None),  # MVAPICH
    ("MPI_LOCALNRANKS", None),  # MPICH's Hydra and Intel MPI
    ("PMI_LOCAL_SIZE", None),  # Cray PMI
    ("PALS_LOCAL_SIZE", None),  # HPE PALS
)
_IN_ALL = (
    ("WORLD_SIZE", "RANK"),  # torchrun, accelerate, DeepSpeed, Ray Train
    ("OMPI_COMM_WORLD_SIZE", None),
    ("MV2_COMM_WORLD_SIZE", None),
    ("PMI_SIZE", None),
    ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"),
)
# One of these differs between the ranks of a host.
_RANK_VARIABLES = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PMI_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "SLURM_LOCALID",
)


def run_id(environ: Mapping[str, str] = os.environ) -> str:
    """The name of this run, the same for its ranks and after a restart; "" where nobody tells.

    ``GUERDON_RUN_ID``, else the id that torchrun was given (``--rdzv-id``), else Slurm's job.
    """
    names = (environ.get(name, "") for name in ("GUERDON_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"))
    # torchrun's default: "none"
    return next((name for name in names if name not in ("", "none")), "")


def ranks_on_host(environ: Mapping[str, str] = os.environ) -> int:
    """Training processes that the launcher started on this host, this one included; 1 where no
    launcher tells."""
    return _first(environ, _ON_HOST) or _slurm_tasks_on_node(environ) or 1


def world_size(environ: Mapping[str, str] = os.environ) -> int:
    """Training processes on all hosts, this one included: those of ``torch.distributed`` once it is
    initialised, else what the launcher tells."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return max(_first(environ, _IN_ALL) or 1, ranks_on_host(environ))


def launchers_cores(environ: Mapping[str, str] = os.environ) -> int:
    """Cores that the launcher shares out among its ranks on this host: those that the launcher's
    own process may use, where it can be found."""
    known = [os.cpu_count() or 1]
    for ancestor in _ancestors():
        if not _is_of_this_rank(ancestor, environ):
            with contextlib.suppress(OSError):  # it has ended
                known.append(len(os.sched_getaffinity(ancestor)))
            break
    # slurmstepd, the launcher here, is not bound to the cores of the job.
    if "SLURM_STEP_TASKS_PER_NODE" in environ:
        known.append(_count(environ.get("SLURM_CPUS_ON_NODE")) or known[0])
    return min(known)


def _first(environ: Mapping[str, str], variables: tuple[tuple[str, str | None], ...]) -> int | None:
    for name, companion in variables:
        if companion is not None and companion not in environ:
            continue
        count = _count(environ.get(name))
        if count is not None:
            return count
    return None


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"0*[1-9][0-9]{0,8}", text) else None


def _slurm_tasks_on_node(environ: Mapping[str, str]) -> int | None:
    """Tasks of the step on this node, from a list such as ``8(x3),4``. ``srun`` sets it; a batch
    script that starts its program without ``srun`` is one rank, whatever the job asked for."""
    nodes: list[int] = []
    for part in environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        match = re.fullmatch(r"\s*([1-9][0-9]{0,5})(?:\(x([1-9][0-9]{0,5})\))?\s*", part)
        if match is None:
            return None
        nodes += [int(match[1])] * int(match[2] or 1)
    node = environ.get("SLURM_NODEID", "")
    if re.fullmatch(r"[0-9]{1,6}", node) and int(node) < len(nodes):
        return nodes[int(node)]
    return max(nodes)


def _ancestors() -> Iterator[int]:
    """Process ids from the parent up, as far as they can be seen."""
    process = os.getppid()
    while process > 0:
        yield process
        try:
            with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
                # The second field, the name in brackets, may hold spaces and brackets itself.
                process = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return


def _is_of_this_rank(process: int, environ: Mapping[str, str]) -> bool:
    """Whether a process got the rank that this one has: a script between the launcher and us. One
    whose environment can't be read belongs to somebody else: it is the launcher."""
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            its = dict(entry.partition(b"=")[::2] for entry in file.read().split(b"\0"))
    except OSError:
        return False
    ranks = [name for name in _RANK_VARIABLES if name in environ]
    return bool(ranks) and all(its.get(os.fsencode(name)) == os.fsencode(environ[name]) for name in ranks)
