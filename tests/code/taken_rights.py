"""Code that takes from the probe's process the rights that containers and plain users lack.

The rules are those of the default profile of Docker (moby/profiles, seccomp/default_linux.go, which
containerd's, Kubernetes' RuntimeDefault, follows) for a container without CAP_SYS_ADMIN: these
calls fail with EPERM, `clone` with flags of name spaces too, and `clone3` with ENOSYS.
"""

from __future__ import annotations

import os

import pytest

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes rights that only root has")

NOBODY = """
import ctypes, os, sysconfig
sysconfig.get_path("stdlib")  # imports what this user may not be able to read
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # what a process of this user has from its start: it may be looked at
"""

# The capabilities that Docker leaves to root, by number: chown, dac_override, fowner, fsetid, kill,
# setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod, audit_write, setfcap.
_CAPABILITIES = """
import ctypes, struct
_kept = sum(1 << number for number in KEPT)
_header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0), 8)
_sets = ctypes.create_string_buffer(struct.pack("=6I", _kept, _kept, 0, 0, 0, 0), 24)
_libc = ctypes.CDLL(None, use_errno=True)
for _number in range(41):
    if not _kept >> _number & 1:
        _libc.prctl(24, _number, 0, 0, 0)  # PR_CAPBSET_DROP
assert _libc.syscall(126, _header, _sets) == 0, "capset"
"""

DOCKER_CAPABILITIES = _CAPABILITIES.replace("KEPT", "(0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)")

# By number on x86-64: acct, add_key, bpf, delete_module, fanotify_init, finit_module, fsconfig,
# fsmount, fsopen, fspick, init_module, io_uring_*, kexec_*, keyctl, lookup_dcookie, mount,
# mount_setattr, move_mount, move_pages, name_to_handle_at, nfsservctl, open_by_handle_at,
# open_tree, perf_event_open, pivot_root, quotactl, reboot, request_key, setdomainname,
# sethostname, setns, settimeofday, clock_settime, swap*, syslog, umount2, unshare, userfaultfd,
# vhangup.
DOCKER_FILTER = """
import ctypes, struct
_denied = [
    163, 248, 321, 176, 300, 313, 431, 432, 430, 433, 175, 425, 426, 427, 246, 320, 250, 212, 165, 442, 429, 279,
    303, 180, 304, 428, 298, 155, 179, 169, 249, 171, 170, 308, 164, 227, 167, 168, 103, 166, 272, 323, 153,
]
_program = [(0x20, 0, 0, 0)]
_program += [(0x15, 0, 1, 435), (0x06, 0, 0, 0x50000 | 38)]  # clone3
for _number in _denied:
    _program += [(0x15, 0, 1, _number), (0x06, 0, 0, 0x50000 | 1)]
_program += [(0x15, 0, 3, 56), (0x20, 0, 0, 16), (0x45, 0, 1, 0x7E020000), (0x06, 0, 0, 0x50000 | 1)]  # clone
_program += [(0x06, 0, 0, 0x7FFF0000)]
_filters = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in _program))
_fprog = ctypes.create_string_buffer(struct.pack("=H6xQ", len(_program), ctypes.addressof(_filters)), 16)
_libc = ctypes.CDLL(None, use_errno=True)
assert _libc.prctl(38, 1, 0, 0, 0) == 0 and _libc.prctl(22, 2, _fprog, 0, 0) == 0, "seccomp"
"""

# As with `capabilities: drop: [ALL]` in Kubernetes, but still as root.
BARE_ROOT = _CAPABILITIES.replace("KEPT", "()") + DOCKER_FILTER
DOCKER_ROOT = DOCKER_CAPABILITIES + DOCKER_FILTER
DOCKER_USER = NOBODY + DOCKER_FILTER

# By number on x86-64, what Linux 5.10 lacks of what is called here: mount_setattr, landlock_*,
# memfd_secret and newer ones, and PR_GET_AUXV of prctl, which came with 6.4.
KERNEL_5_10 = """
import ctypes, struct
_program = [(0x20, 0, 0, 0)]
_program += [(0x35, 0, 1, 442), (0x06, 0, 0, 0x50000 | 38)]
_program += [(0x15, 0, 3, 157), (0x20, 0, 0, 16), (0x15, 0, 1, 0x41555856), (0x06, 0, 0, 0x50000 | 22)]
_program += [(0x06, 0, 0, 0x7FFF0000)]
_filters = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in _program))
_fprog = ctypes.create_string_buffer(struct.pack("=H6xQ", len(_program), ctypes.addressof(_filters)), 16)
_libc = ctypes.CDLL(None, use_errno=True)
assert _libc.prctl(38, 1, 0, 0, 0) == 0 and _libc.prctl(22, 2, _fprog, 0, 0) == 0, "seccomp"
"""
