"""Number of cores that this process may use, and the default number of workers.

Libraries bind threads to cores: if ``OMP_PROC_BIND`` or ``KMP_AFFINITY`` is set, an OpenMP runtime
binds the thread that imports torch to one core, and later threads and processes inherit that.
Therefore the cores of a process are not those of the calling thread.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import warnings
from collections.abc import Iterator

from guerdon._system.launcher import launcher_affinity, launchers_cores, ranks_on_host
from guerdon._system.warning import GuerdonWarning


def usable_cores() -> int:
    """Number of cores that this process may run on: by its CPU affinity, or by the CPU quota of its
    container or of a control group above, if that is lower."""
    from guerdon import _native

    cores = allowed_cores()
    if len(cores) <= 1 or cores == own_cores():
        return _native.available_parallelism()
    counted: list[int] = []

    def count() -> None:
        with on_cores(cores):
            counted.append(_native.available_parallelism())

    thread = threading.Thread(target=count)  # the caller's own affinity stays as it is
    thread.start()
    thread.join()
    return counted[0] if counted else _native.available_parallelism()


def own_cores() -> frozenset[int]:
    """The cores that the calling thread may use, by number; empty if the system doesn't report
    them."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def allowed_cores() -> frozenset[int]:
    """The cores that this process may use, by number: the cores of all its threads, and the cores
    that an OpenMP runtime found before it bound a thread. Empty if the system doesn't report
    them."""
    found = set(own_cores())
    if found:
        for thread in _threads():
            with contextlib.suppress(OSError):  # it has ended
                found |= os.sched_getaffinity(thread)
        found |= _openmp_places()
    return frozenset(found)


@contextlib.contextmanager
def on_cores(cores: frozenset[int]) -> Iterator[None]:
    """Lets processes and threads that the calling thread starts within use these cores."""
    own = own_cores()
    if not cores or cores == own:
        yield
        return
    with contextlib.suppress(OSError):  # they were taken away meanwhile
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, own)


def warn_if_bound(cores: frozenset[int]) -> None:
    """Warns if an OpenMP runtime has bound the calling thread to some of these cores."""
    variables = [name for name in _BINDING if name in os.environ]
    own = own_cores()
    if variables and own < cores:
        warnings.warn(
            f"{' and '.join(variables)} bound this thread to {_count(own)} of the {_count(cores)} that the process may "
            f"use. Guerdon's workers and threads use all of them. To bind them too, start the process with `taskset`.",
            GuerdonWarning,
            stacklevel=2,
        )


def default_workers() -> int:
    """Default number of a dispatcher's workers: this process's share of the cores, at least one.
    Cores that the launcher has bound this rank to are not divided again; a quota of CPU time is,
    since the ranks of a container share it."""
    ranks = ranks_on_host()
    usable = usable_cores()
    if ranks == 1 or not hasattr(os, "sched_getaffinity"):
        return max(1, usable // ranks)
    bound = len(allowed_cores())
    share = min(bound, launchers_cores() // ranks)
    if usable < bound:  # by a quota
        share = min(share, usable // ranks)
    return max(1, share)


def host_workers() -> int:
    """Workers of an engine that all ranks of this host share: the cores that they may use
    together, at least one."""
    cores = host_cores()
    usable = usable_cores()
    if not cores:
        return max(1, usable)
    bound = len(allowed_cores())
    # A quota of CPU time holds for all of them.
    return max(1, len(cores) if usable >= bound else min(len(cores), usable))


def host_cores() -> tuple[int, ...]:
    """The cores that the ranks of this host may use together, by number: those of their launcher,
    or this process's own if these are unknown."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    own = allowed_cores()
    launcher = launcher_affinity()
    return tuple(sorted(launcher if launcher is not None and launcher >= own else own))


# Variables that make OpenMP runtimes bind threads.
_BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
_OPENMP = re.compile(r"\S*/lib(?:gomp|iomp5|omp)\b[^/\s]*\.so[^/\s]*")


def _threads() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/task")]
    except OSError:
        return []


def _openmp_places() -> set[int]:
    """The cores over which the loaded OpenMP runtimes bind threads, if they do."""
    found: set[int] = set()
    if not any(name in os.environ for name in _BINDING):
        return found
    import ctypes  # not by `import guerdon`

    with contextlib.suppress(OSError, AttributeError, UnicodeDecodeError):
        with open("/proc/self/maps", encoding="utf-8") as file:
            libraries = set(_OPENMP.findall(file.read()))
        for library in libraries:
            runtime = ctypes.CDLL(library)  # it is loaded already
            for place in range(runtime.omp_get_num_places()):
                cores = (ctypes.c_int * runtime.omp_get_place_num_procs(place))()
                runtime.omp_get_place_proc_ids(place, cores)
                found.update(cores)
    return found


def _count(cores: frozenset[int]) -> str:
    return f"{len(cores)} core{'' if len(cores) == 1 else 's'}"
