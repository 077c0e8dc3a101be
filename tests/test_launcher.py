"""Ranks and cores as each launcher tells them, and where no launcher is at work: one row a
launcher, and the launchers that can be run here for real."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest

from guerdon._system import launcher as _launcher
from guerdon._system.cpu_count import default_workers, usable_cores
from guerdon._system.launcher import launchers_cores, ranks_on_host, world_size
from tests.processes import run_python

# Environments of launchers, with the ranks on this host and in all.
_TORCHRUN = "RANK=3 LOCAL_RANK=3 WORLD_SIZE=16 LOCAL_WORLD_SIZE=8"
_SLURM_STEP = "SLURM_PROCID=3 SLURM_LOCALID=3 SLURM_NODEID=0 SLURM_NTASKS=16"
_OPEN_MPI = "OMPI_COMM_WORLD_SIZE=16 OMPI_COMM_WORLD_LOCAL_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1"
_UNEVEN_STEP = "SLURM_STEP_NUM_TASKS=10 SLURM_STEP_TASKS_PER_NODE=4,6"
LAUNCHERS: dict[str, tuple[str, int, int]] = {
    "no launcher": ("", 1, 1),
    "torchrun": (_TORCHRUN, 8, 16),
    "accelerate": (f"{_TORCHRUN} ACCELERATE_MIXED_PRECISION=no", 8, 16),
    "Ray Train": (f"{_TORCHRUN} NODE_RANK=0", 8, 16),
    "deepspeed": ("RANK=3 LOCAL_RANK=3 WORLD_SIZE=16 LOCAL_SIZE=8 CROSS_SIZE=2", 8, 16),
    "LOCAL_SIZE of something else": ("LOCAL_SIZE=40", 1, 1),
    "WORLD_SIZE of something else": ("WORLD_SIZE=4", 1, 1),
    "one rank a pod": ("RANK=1 WORLD_SIZE=4", 1, 4),
    "srun": (f"{_SLURM_STEP} SLURM_STEP_NUM_TASKS=16 SLURM_STEP_TASKS_PER_NODE=8(x2)", 8, 16),
    "srun, nodes that differ": (
        f"{_SLURM_STEP} SLURM_STEP_NUM_TASKS=14 SLURM_STEP_TASKS_PER_NODE=4(x2),6 SLURM_NODEID=2",
        6,
        14,
    ),
    "srun, node not told": (_UNEVEN_STEP, 6, 10),
    "srun, a node that can't be": (f"{_UNEVEN_STEP} SLURM_NODEID={'1' * 5000}", 6, 10),
    "sbatch without srun": (f"{_SLURM_STEP} SLURM_TASKS_PER_NODE=8(x2)", 1, 1),
    "torchrun started by srun": (
        f"{_SLURM_STEP} SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2) {_TORCHRUN}",
        8,
        16,
    ),
    "Open MPI": (_OPEN_MPI, 8, 16),
    "MPICH, Intel MPI": ("PMI_SIZE=16 PMI_RANK=1 MPI_LOCALNRANKS=8", 8, 16),
    "Cray PMI": ("PMI_SIZE=16 PMI_LOCAL_SIZE=8 PMI_LOCAL_RANK=2", 8, 16),
    "MVAPICH": ("MV2_COMM_WORLD_SIZE=16 MV2_COMM_WORLD_LOCAL_SIZE=8", 8, 16),
    "PALS": ("PALS_LOCAL_SIZE=12 PALS_LOCAL_RANKID=2 PMI_SIZE=24", 12, 24),
    "not a number": ("LOCAL_WORLD_SIZE=what", 1, 1),
    "nonsense": ("LOCAL_WORLD_SIZE=0 SLURM_STEP_TASKS_PER_NODE=2(x", 1, 1),
    "other digits": ("LOCAL_WORLD_SIZE=٣ SLURM_STEP_TASKS_PER_NODE=٣", 1, 1),
    "contradictory": ("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=4", 4, 4),
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks(launcher: str) -> None:
    variables, on_host, in_all = LAUNCHERS[launcher]
    environ = dict(variable.split("=") for variable in variables.split())
    assert (ranks_on_host(environ), world_size(environ)) == (on_host, in_all)


class Machine:
    """A machine with cores and a launcher on it, as this process would see them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        for name in [name for name in os.environ if name.startswith(("SLURM_", "OMPI_", "PMI_", "MV2_", "PALS_"))]:
            monkeypatch.delenv(name)
        for name in ("LOCAL_SIZE", "WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE"):
            monkeypatch.delenv(name, raising=False)

    def __call__(
        self, cores: int, *, launcher: int, bound: int, quota: int | None = None, env: dict[str, str] | None = None
    ) -> int:
        patch = self._monkeypatch
        patch.setattr(os, "cpu_count", lambda: cores)
        patch.setattr(os, "sched_getaffinity", lambda process: set(range(launcher if process else bound)))
        patch.setattr("guerdon._system.cpu_count.allowed_cores", lambda: frozenset(range(bound)))
        patch.setattr("guerdon._system.cpu_count.usable_cores", lambda: min(bound, quota or bound))
        for name, value in {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8", **(env or {})}.items():
            patch.setenv(name, value)
        return default_workers()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize(
    ("cores", "launcher", "bound", "quota", "workers"),
    [
        pytest.param(192, 192, 192, None, 24, id="nothing bound"),
        pytest.param(192, 192, 24, None, 24, id="each rank on cores of its own"),
        pytest.param(192, 192, 96, None, 24, id="four ranks on each NUMA node"),
        pytest.param(192, 192, 12, None, 12, id="bound to fewer than its share"),
        pytest.param(192, 16, 16, None, 2, id="all ranks on sixteen cores, by taskset"),
        pytest.param(192, 192, 192, 32, 4, id="a container's quota"),
        pytest.param(192, 192, 24, 8, 1, id="bound, under a quota"),
        pytest.param(4, 4, 4, None, 1, id="more ranks than cores"),
    ],
)
def test_a_ranks_share_of_the_cores(
    machine: Machine, cores: int, launcher: int, bound: int, quota: int | None, workers: int
) -> None:
    assert machine(cores, launcher=launcher, bound=bound, quota=quota) == workers


def test_slurms_allocation_is_what_its_ranks_share(machine: Machine) -> None:
    """slurmstepd may use the whole node; the job has sixteen of its cores, and binds nothing."""
    step = {"SLURM_STEP_TASKS_PER_NODE": "8", "SLURM_CPUS_ON_NODE": "16", "SLURM_LOCALID": "1"}
    assert machine(192, launcher=192, bound=16, env=step) == 2


def test_a_script_between_the_launcher_and_the_rank_is_looked_through(tmp_path: Path) -> None:
    """The shell that starts a rank is bound as the rank is; who may use more is its parent."""
    core = min(os.sched_getaffinity(0))
    program = (
        "import os; from guerdon._system import launcher as _launcher; from guerdon._system.launcher import launchers_cores\n"
        "os.cpu_count = lambda: 1000\n"
        "own = [p for p in _launcher._ancestors() if _launcher._is_of_this_rank(p, os.environ)]\n"
        "print(len(os.sched_getaffinity(0)), launchers_cores(), len(own))"
    )
    script = tmp_path / "rank.sh"
    script.write_text(f"{sys.executable} -c '{program}'\ntrue\n")
    ended = subprocess.run(
        ["sh", str(script)],
        env={**os.environ, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"},
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split() == ["1", str(len(os.sched_getaffinity(0))), "1"]


def test_the_launcher_is_not_found_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(process: int) -> set[int]:
        raise ProcessLookupError(process)

    monkeypatch.setattr(os, "sched_getaffinity", gone)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(_launcher, "_ancestors", lambda: iter([2**22 + 1]))
    assert launchers_cores({"LOCAL_RANK": "0"}) == 64


def _limit_to_one_core(group: Path) -> None:
    if (group / "cpu.cfs_quota_us").exists():
        (group / "cpu.cfs_quota_us").write_text("100000")
    else:
        (group / "cpu.max").write_text("100000 100000")


def test_a_limit_on_a_group_further_up_counts() -> None:
    """A real control group within one that may use one core's worth of time."""
    if usable_cores() < 2:
        pytest.skip("needs two cores")
    root = Path("/sys/fs/cgroup/cpu") if Path("/sys/fs/cgroup/cpu/tasks").exists() else Path("/sys/fs/cgroup")
    if not (root / "cgroup.procs").exists():
        pytest.skip("no control groups are mounted here")
    outer = root / f"guerdon-test-{os.getpid()}"
    inner = outer / "inner"
    try:
        outer.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        inner.mkdir()
        try:
            _limit_to_one_core(outer)
        except OSError as error:
            pytest.skip(f"the CPU controller is not handed down here: {error}")
        program = "from guerdon._system.cpu_count import usable_cores; print(usable_cores())"
        ended = run_python(program, preexec_fn=lambda: (inner / "cgroup.procs").write_text(str(os.getpid())))
        assert ended.stdout.strip() == "1"
    finally:
        for group in (inner, outer):
            if group.exists():
                group.rmdir()


_RANK = """
import json, os, pathlib, sys
from guerdon._system.cpu_count import default_workers
from guerdon._system.launcher import ranks_on_host, world_size
reported = [ranks_on_host(), world_size(), default_workers()]
(pathlib.Path(__file__).parent / f"{os.getpid()}.json").write_text(json.dumps(reported))
"""


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"], id="torchrun"
        ),
        pytest.param(
            [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2"],
            id="accelerate",
        ),
        pytest.param(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable], id="mpirun"),
    ],
)
def test_real_launchers(command: list[str], tmp_path: Path) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    if command[1] == "-m":
        pytest.importorskip(command[2].partition(".")[0])
    script = tmp_path / "rank.py"
    script.write_text(_RANK)
    ended = subprocess.run(
        [*command, str(script)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    reported = [json.loads(file.read_text()) for file in tmp_path.glob("*.json")]
    assert reported == [[2, 2, max(1, usable_cores() // 2)]] * 2, ended.stderr[-2000:]


def test_a_process_alone_uses_the_cores_it_may_use() -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))
    assert default_workers() == usable_cores()


def test_affinity_counts() -> None:
    core = min(os.sched_getaffinity(0))
    program = "from guerdon._system.cpu_count import default_workers; print(default_workers())"
    ended = run_python(program, preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    assert ended.stdout.strip() == "1"


# The main thread is bound to one core while `bind` runs; then a worker counts its cores.
BOUND = """
import os, threading, warnings
import guerdon

def cores(completion):
    return float(len(os.sched_getaffinity(0)))

if __name__ == "__main__":
    before = len(os.sched_getaffinity(0))
    {bind}
    assert len(os.sched_getaffinity(0)) == 1 < before
    with warnings.catch_warnings(record=True) as caught, guerdon.Dispatcher([guerdon.reward(cores)]) as dispatcher:
        seen = dispatcher.score(completions=["a"]).rewards.item()
        dispatcher.score(completions=["a"])
    print(seen == before == dispatcher.workers, len(os.sched_getaffinity(0)), *[str(one.message) for one in caught])
"""
ANOTHER_THREAD = """
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one core")
    return tmp_path / "bound.py"


def _run(program: Path, bind: str, **environ: str) -> str:
    program.write_text(BOUND.replace("{bind}", bind))
    return run_python(program, env=environ, timeout=60).stdout


def test_workers_have_the_cores_of_all_threads_where_the_main_thread_is_bound(program: Path) -> None:
    assert _run(program, ANOTHER_THREAD) == "True 1\n"


def test_workers_have_the_cores_that_openmp_binds_threads_over(program: Path) -> None:
    """One warning comes, as the variable may have been meant for all of the process."""
    bound = _run(program, f"import ctypes; ctypes.CDLL({_openmp()!r})", OMP_PROC_BIND="close")
    assert bound.startswith("True 1 OMP_PROC_BIND bound this thread to 1 core of the ")
    assert bound.count("OMP_PROC_BIND") == 1


def _openmp() -> str:
    torch = importlib.util.find_spec("torch")
    folders = [] if torch is None else torch.submodule_search_locations or []
    found = [*(str(file) for folder in folders for file in Path(folder, "lib").glob("libgomp*")), find_library("gomp")]
    if found[0] is None:
        pytest.skip("no libgomp")
    return found[0]
