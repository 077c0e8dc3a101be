"""Number of training processes that the launcher started, on this host and in all, and the cores of
each.

A launcher sets environment variables for its processes. If one launcher starts another, the inner
one counts: torchrun's and DeepSpeed's variables come before MPI's, those before Slurm's.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Final

# (the variable, another one that the launcher sets too: so that a name as common as LOCAL_SIZE
# counts only if its launcher set it)
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
_RANK_OF_ALL = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", None),
    ("MV2_COMM_WORLD_RANK", None),
    ("PMI_RANK", None),
    ("PALS_RANKID", None),
    ("SLURM_PROCID", None),
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
# Identity of a job's launch: the same for all ranks of one, whichever launcher set it.
_OF_ONE_LAUNCH = (
    ("SLURM_STEP_ID", None),
    ("SLURM_STEPID", None),  # as older versions call it
    ("PMIX_NAMESPACE", None),  # Open MPI
    ("PALS_APID", None),  # HPE PALS
    ("MASTER_PORT", "TORCHELASTIC_RUN_ID"),  # torchrun, accelerate
)

RANK_VARIABLES: Final = frozenset((*_RANK_VARIABLES, *(name for name, _ in _RANK_OF_ALL)))
"""Variables by which launchers tell a process its rank."""


def run_id(environ: Mapping[str, str] = os.environ) -> str:
    """The name of this run, the same for its ranks on all hosts and after a restart; "" without
    one.

    ``GUERDON_RUN_ID``, else the id that torchrun was given (``--rdzv-id``), else Ray's session and
    job, else Slurm's job: one job of Slurm may run several of Ray, one after another.
    """
    for name in (environ.get("GUERDON_RUN_ID", ""), environ.get("TORCHELASTIC_RUN_ID", "")):
        if name not in ("", "none"):  # torchrun's default
            return name
    return _ray_job() or environ.get("SLURM_JOB_ID", "")


def _ray_job() -> str:
    """Ray's session and job, which are the same in all of its processes; "" outside Ray.

    Jobs are numbered from 1 in each cluster, so the number alone is not unique.
    """
    ray = sys.modules.get("ray")
    try:
        if ray is None or not ray.is_initialized():
            return ""
        context = ray.get_runtime_context()
        return f"{context.get_session_name().removeprefix('session_')}-{context.get_job_id()}"
    # an older Ray, a client of a cluster elsewhere, or another module of that name
    except Exception:
        return ""


def has_launcher(environ: Mapping[str, str] = os.environ) -> bool:
    """Returns whether a launcher started this process, as one of the ranks of its host."""
    return any(name in environ for name in _RANK_VARIABLES)


def launch_id(environ: Mapping[str, str] = os.environ) -> str:
    """A name of this launch: `run_id` where there is one, else the second at which the launcher was
    started, or without a launcher this process, with its process id. The same for all ranks of a
    host."""
    known = run_id(environ)
    if known:
        return known
    process = os.getpid()
    if has_launcher(environ):
        process = next((one for one in _ancestors() if not _is_of_this_rank(one, environ)), os.getppid())
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(_started(process)))}-{process}"


def launch_on_host(environ: Mapping[str, str] = os.environ) -> str:
    """A name of this launch for its ranks on this host: `launch_id`, with the step or the launcher
    if the id is only that of Slurm's job, which may run several on a host at a time."""
    known = launch_id(environ)
    if known != environ.get("SLURM_JOB_ID"):
        return known
    set_by = [name for name, other in _OF_ONE_LAUNCH if name in environ and (other is None or other in environ)]
    return " ".join((known, *(f"{name}={environ[name]}" for name in set_by)))


def ranks_on_host(environ: Mapping[str, str] = os.environ) -> int:
    """Number of training processes on this host, including this one, by the launcher's variables; 1
    without a launcher."""
    return _first(environ, _ON_HOST) or _slurm_tasks_on_node(environ) or 1


def rank(environ: Mapping[str, str] = os.environ) -> int:
    """This process among the training processes of all hosts, from 0: by ``torch.distributed`` once
    it is initialised, otherwise by the launcher's variables."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    for name, companion in _RANK_OF_ALL:
        found = _index(environ.get(name))
        if found is not None and (companion is None or companion in environ):
            return found
    return 0


def local_rank(environ: Mapping[str, str] = os.environ) -> int:
    """This process among the training processes of its host, from 0."""
    found = (_index(environ.get(name)) for name in _RANK_VARIABLES)
    return next((index for index in found if index is not None), 0)


def world_size(environ: Mapping[str, str] = os.environ) -> int:
    """Number of training processes on all hosts, including this one: by ``torch.distributed`` once
    it is initialised, otherwise by the launcher's variables."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return max(_first(environ, _IN_ALL) or 1, ranks_on_host(environ))


def launchers_cores(environ: Mapping[str, str] = os.environ) -> int:
    """Cores that the launcher shares out among its ranks on this host: those that the launcher's
    own process may use, where it can be found."""
    known = [os.cpu_count() or 1]
    cores = _affinity(environ)
    if cores is not None:
        known.append(len(cores))
    # slurmstepd, the launcher here, is not bound to the cores of the job.
    if "SLURM_STEP_TASKS_PER_NODE" in environ:
        known.append(_count(environ.get("SLURM_CPUS_ON_NODE")) or known[0])
    return min(known)


def launcher_affinity(environ: Mapping[str, str] = os.environ) -> frozenset[int] | None:
    """The cores that the ranks of this host may use together, by number: the launcher's; None if
    there is one rank, in a Slurm step, or if the launcher is not found."""
    if ranks_on_host(environ) == 1 or "SLURM_STEP_TASKS_PER_NODE" in environ:
        return None  # slurmstepd, the launcher there, is not bound to the cores of the job
    return _affinity(environ)


def _affinity(environ: Mapping[str, str]) -> frozenset[int] | None:
    """The cores that the launcher's own process may use, where it can be found."""
    for ancestor in _ancestors():
        if not _is_of_this_rank(ancestor, environ):
            with contextlib.suppress(OSError):  # it has ended
                return frozenset(os.sched_getaffinity(ancestor))
            break
    return None


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


def _index(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text) else None


def _slurm_tasks_on_node(environ: Mapping[str, str]) -> int | None:
    """Tasks of the step on this node, from a list such as ``8(x3),4``. ``srun`` sets it; a batch
    script that starts its program without ``srun`` is one rank, whatever the size of the job."""
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


def _started(process: int) -> float:
    """When a process was started, in seconds since 1970; now where that can't be seen."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/stat", encoding="utf-8") as file:
            boot = next(int(line.split()[1]) for line in file if line.startswith("btime "))
    except (OSError, ValueError, IndexError, StopIteration):
        return time.time()
    return boot + ticks / os.sysconf("SC_CLK_TCK")


def _is_of_this_rank(process: int, environ: Mapping[str, str]) -> bool:
    """Returns whether a process got the rank that this one has: a script between the launcher and
    us. One whose environment can't be read belongs to somebody else: it is the launcher."""
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            its = dict(entry.partition(b"=")[::2] for entry in file.read().split(b"\0"))
    except OSError:
        return False
    ranks = [name for name in _RANK_VARIABLES if name in environ]
    return bool(ranks) and all(its.get(os.fsencode(name)) == os.fsencode(environ[name]) for name in ranks)
