"""A jail for programs that are run without Guerdon's fences: `run_in_jail`.

- Inside: name spaces of its own, a root of which nothing but ``/own`` and ``/var/tmp`` (in memory)
  can be written, a user without rights, no network, and the end of all that was started with the
  first.
- Where a machine does not allow that, `why_no_jail` says so, and nothing is run.

As a program: ``jail.py PATHS COMMAND``, both as JSON, runs the command in a jail with these paths.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["OWN", "run_in_jail", "why_no_jail"]

OWN = "/own"
USER = 61000

_NAMESPACES = (
    0x00020000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000
)  # mounts, processes, network, ipc, host name
_NEW_USER = 0x10000000
_BIND, _REC, _PRIVATE = 0x1000, 0x4000, 1 << 18
_NOSUID, _NODEV = 2, 4
_DETACH = 2
_READ_ONLY, _RECURSIVE = 1, 0x8000

_libc = ctypes.CDLL(None, use_errno=True)


def why_no_jail() -> str:
    """Why this machine has no jail; "" where it has one."""
    return _tried(sys.prefix)


@functools.cache
def _tried(prefix: str) -> str:
    if sys.platform != "linux":
        return "not Linux"
    ended = run_in_jail([sys.executable, "-I", "-c", "open('/own/x', 'x').close(); print('here')"], b"", [], 60.0)
    return (
        ""
        if ended.stdout == b"here\n"
        else ended.stderr.decode("utf-8", "replace").strip()[-500:] or "it printed nothing"
    )


def run_in_jail(
    command: Sequence[str], stdin: bytes, paths: Sequence[str], timeout: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a jail that can read the interpreter, the system's libraries and `paths`."""
    seen = ["/usr", "/lib", "/lib32", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/passwd", "/etc/localtime"]
    seen += ["/dev/null", "/dev/zero", "/dev/urandom", sys.base_prefix, sys.prefix, *paths]
    jail = [sys.executable, "-I", str(Path(__file__).resolve()), json.dumps(seen), json.dumps(list(command))]
    return subprocess.run(
        jail, input=stdin, capture_output=True, timeout=timeout, env={"PATH": "/usr/bin:/bin"}, check=False
    )


def _main(paths: list[str], command: list[str]) -> None:
    as_root = os.geteuid() == 0
    user, group = os.getuid(), os.getgid()
    _call("unshare", _NAMESPACES | (0 if as_root else _NEW_USER))
    if not as_root:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    _libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # ends with the process that waits
    _enter_root(paths)
    if as_root:
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
    else:
        _drop_capabilities()
    _libc.prctl(38, 1, 0, 0, 0)  # no new privileges
    # As many processes as a forking program may have at a time; the rest is for its graders.
    for kind, most in ((resource.RLIMIT_NPROC, 1000), (resource.RLIMIT_FSIZE, 32 << 20), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (most, most))
    os.chdir(OWN)
    # Its parent is the first process here: what is left, that one ends.
    inner = os.fork()
    if inner == 0:
        os.execve(command[0], command, {"PATH": "/usr/bin:/bin", "HOME": OWN, "TMPDIR": OWN})
    while True:
        ended, status = os.wait()
        if ended == inner:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _enter_root(paths: list[str]) -> None:
    """A new root in memory with `paths`, all of it read-only but the own folder."""
    base = "/tmp"
    _call("mount", b"none", b"/", None, _REC | _PRIVATE, None)
    # Held before the new root covers what lies below it.
    sources = {path: os.open(path, os.O_PATH) for path in dict.fromkeys(paths) if os.path.exists(path)}
    _call("mount", b"tmpfs", base.encode(), b"tmpfs", _NOSUID | _NODEV, b"mode=0755,size=1m")
    for path, fd in sources.items():
        real = base + path
        if os.path.lexists(real):
            continue
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            os.makedirs(real)
        else:
            os.makedirs(os.path.dirname(real), exist_ok=True)
            Path(real).touch()
        _call("mount", f"/proc/self/fd/{fd}".encode(), real.encode(), None, _BIND | _REC, None)
        os.close(fd)
    for folder in ("/proc", OWN, "/var/tmp", "/tmp", "/old"):
        os.makedirs(base + folder, exist_ok=True)
    _call("mount", b"proc", f"{base}/proc".encode(), b"proc", _NOSUID | _NODEV, None)
    _call("syscall", 155, base.encode(), f"{base}/old".encode())  # pivot_root
    os.chdir("/")
    _call("umount2", b"/old", _DETACH)
    attributes = (ctypes.c_uint64 * 4)(_READ_ONLY, 0, 0, 0)
    _call("syscall", 442, -1, b"/", _RECURSIVE, attributes, 32)  # mount_setattr
    for folder in (OWN, "/var/tmp"):
        _call("mount", b"tmpfs", folder.encode(), b"tmpfs", _NOSUID | _NODEV, b"mode=01777,size=64m,nr_inodes=4096")


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())


def _call(name: str, *args: object) -> None:
    given = [ctypes.c_long(one) if isinstance(one, int) else one for one in args]
    if getattr(_libc, name)(*given) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name} {args[:2]}: {os.strerror(number)}")


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]), json.loads(sys.argv[2]))
