"""Acts on files that are not the program's own."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable

from guerdon.rewards.code.zygote.acts import _make, _read
from tests.code.acts.act import Act, Missing, Targets, own_folder

__all__ = ["FILES"]

_FILE_LAYERS = ("landlock", "namespaces")


def _find(folder: str, name: str | None) -> None:
    """A folder of that name may be there, empty, above a readable path."""
    if name is None:
        raise Missing("nothing in it")
    if name not in os.listdir(folder):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def _open_to_write(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))


def _canary(targets: Targets) -> str:
    return os.path.join(targets.folder, "canary")


def _link_out(targets: Targets) -> None:
    link = os.path.join(own_folder(targets), "link")
    os.symlink(_canary(targets), link)
    try:
        _read(link)
    finally:
        os.unlink(link)


def _hard_link(targets: Targets) -> None:
    link = os.path.join(targets.folder, f"link-{os.urandom(6).hex()}")
    os.link(_canary(targets), link)
    os.unlink(link)


def _hard_link_into_own(targets: Targets) -> None:
    link = os.path.join(own_folder(targets), "hard")
    os.link(_canary(targets), link)
    os.unlink(link)


def _symlink_elsewhere(targets: Targets) -> None:
    link = os.path.join(targets.folder, f"link-{os.urandom(6).hex()}")
    os.symlink("nowhere", link)
    os.unlink(link)


def _change_mode(targets: Targets) -> None:
    os.chmod(_canary(targets), 0o666)  # as it is


def _change_times(targets: Targets) -> None:
    os.utime(_canary(targets))


def _truncate(targets: Targets) -> None:
    os.truncate(_canary(targets), os.stat(_canary(targets)).st_size)


def _empty_by_reading(targets: Targets) -> None:
    path = os.path.join(targets.folder, "empty")
    os.close(os.open(path, os.O_RDONLY | os.O_TRUNC | os.O_CLOEXEC))


def _open_for_nothing(path: str) -> None:
    os.close(os.open(path, os.O_ACCMODE | os.O_CLOEXEC))  # neither to read nor to write


def _change_flags(targets: Targets) -> None:
    """Sets them to what they are."""
    get, put = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS, FS_IOC_SETFLAGS
    with open(targets.library, "rb") as file:
        try:
            flags = fcntl.ioctl(file, get, bytes(8))
        except OSError as error:
            raise Missing("no flags in this file system") from error
        fcntl.ioctl(file, put, flags)


def _lock(targets: Targets) -> None:
    if targets.spec.processes:
        raise Missing("compilers lock their own files")
    with open(targets.library, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _command(path: str, command: int, argument: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.fcntl(fd, command, argument)
    finally:
        os.close(fd)


def _shared(targets: Targets) -> str:
    if targets.shared is None:
        raise Missing("no /dev/shm")
    return targets.shared


def _in_shared_memory(_: Targets) -> None:
    if os.path.realpath("/dev/shm") == os.path.realpath("."):
        raise Missing("/dev/shm is the program's own folder")
    _make("/dev/shm")


def _change_library(targets: Targets) -> None:
    os.chmod(targets.library, os.stat(targets.library).st_mode & 0o7777)


def _of_temporary(_: Targets) -> None:
    for folder in ("/tmp", "/var/tmp"):
        try:
            _make(folder)
            return
        except OSError as error:
            refused = error
    raise refused


def _acts(*acts: tuple[str, Callable[[Targets], object]]) -> tuple[Act, ...]:
    return tuple(Act(name, _FILE_LAYERS, attempt) for name, attempt in acts)


FILES = (
    *_acts(
        ("list the home folder", lambda t: _find(t.home, t.in_home)),
        ("read the list of users", lambda _: _read("/etc/passwd")),
        ("read the passwords' file", lambda _: _read("/etc/shadow")),
        ("list the root folder's /etc", lambda _: _find("/etc", "passwd")),
        ("list another's folder", lambda t: os.listdir(t.folder)),
        ("list the temporary files of others", lambda t: _find(*os.path.split(t.folder))),
        ("write to another's file", lambda t: _open_to_write(_canary(t))),
        ("open another's file for neither reading nor writing", lambda t: _open_for_nothing(_canary(t))),
        ("make a file in /tmp", _of_temporary),
        ("make a file in the home folder", lambda t: _make(t.home)),
        ("make a file in the root folder", lambda _: _make("/")),
        ("make a file in the interpreter's library", lambda t: _make(os.path.dirname(t.library))),
        ("write to the interpreter's library", lambda t: _open_to_write(t.library)),
        ("read through a symbolic link out of its folder", _link_out),
        ("make a hard link to another's file", _hard_link),
        ("make a hard link to another's file in its own folder", _hard_link_into_own),
        ("make a symbolic link in another's folder", _symlink_elsewhere),
        ("read shared memory of others", lambda t: _read(_shared(t))),
        ("make a file in /dev/shm", _in_shared_memory),
        ("read the kernel's messages", lambda _: _read("/dev/kmsg")),
        ("open a terminal", lambda _: os.close(os.open("/dev/ptmx", os.O_RDWR))),
    ),
    Act("change the mode of another's file", ("seccomp", "user", "namespaces"), _change_mode),
    Act("change the mode of the interpreter's library", ("seccomp", "user", "namespaces"), _change_library),
    Act("open a device for neither reading nor writing", ("seccomp",), lambda _: _open_for_nothing(os.devnull)),
    Act("change the flags of the interpreter's library", ("seccomp", "user", "namespaces"), _change_flags),
    Act("change the times of another's file", ("seccomp", "user", "namespaces"), _change_times),
    Act("cut another's file", ("landlock", "seccomp", "namespaces"), _truncate),
    Act("empty a file by opening it to read", ("seccomp", "landlock", "namespaces"), _empty_by_reading),
    Act("lock the interpreter's library", ("seccomp",), _lock),
    Act(
        "have a lease of the interpreter's library",
        ("seccomp",),
        lambda t: _command(t.library, fcntl.F_SETLEASE, fcntl.F_RDLCK),
    ),
    Act(
        "have notice of changes in the interpreter's library",
        ("seccomp",),
        lambda t: _command(os.path.dirname(t.library), fcntl.F_NOTIFY, fcntl.DN_DELETE),
    ),
)
