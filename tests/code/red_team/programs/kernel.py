"""System calls that no program under test needs: name spaces, mounts, rights, large interfaces.

Each is made with arguments that would do nothing: an answer other than "not permitted" or "not
implemented" says that the kernel took it up, and counts as success.
"""

from __future__ import annotations

from typing import Final

from tests.code.red_team.program import Program, attempts

_CALLS: Final = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def taken(*calls):
    last = 0
    for number, *args in calls:
        ctypes.set_errno(0)
        result = libc.syscall(number, *[ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args])
        last = ctypes.get_errno()
        if result >= 0 or last not in (errno.EPERM, errno.EACCES, errno.ENOSYS): return
    raise PermissionError(last, os.strerror(last))
"""

PROGRAMS: Final[tuple[Program, ...]] = (
    *attempts(
        r"""
=== new_namespaces: makes name spaces of users, mounts and processes
#: works
def attempt(): taken((272, 0x10000000), (272, 0x20000), (272, 0x20000000))
=== clone_namespaces: makes a thread or process in new name spaces
def attempt(): taken((56, 0x10000000 | 17, 0, 0, 0, 0), (435, 0, 88))
=== enters_namespaces: enters name spaces through descriptors
#: works
def attempt(): taken((308, 0, 0))
=== mounts: mounts, unmounts and moves file systems
def attempt(): taken((165, 0, 0, 0, 0, 0), (166, 0, 0), (155, 0, 0), (442, -1, 0, 0, 0, 0))
=== new_mounts: opens file systems by the newer calls
#: works
def attempt(): taken((430, 0, 0), (428, -1, 0, 0), (432, -1, 0, 0), (433, -1, 0, 0))
=== changes_its_root: changes its root
def attempt(): taken((161, b"/"))
=== changes_its_user: takes another user and its rights back
#: works
def attempt(): taken((105, 0), (106, 0), (117, 0, 0, 0), (113, 0, 0), (122, 0), (116, 0, 0))
=== takes_capabilities: gives itself capabilities
#: works
def attempt(): taken((126, (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()))
=== io_uring: does its calls through io_uring, past the filter
#: works
def attempt(): taken((425, 1, 0), (426, -1, 0, 0, 0, 0), (427, -1, 0, 0, 0))
=== reserved_requests: takes the asynchronous requests that the whole machine may have under way
#: works
def attempt(): taken((206, 1, (ctypes.c_ulong * 1)()))
=== file_watches: takes the watches that a user may have
#: works
def attempt(): taken((253,), (294, 0))
=== bpf: loads programs into the kernel
#: works
def attempt(): taken((321, 0, 0, 0))
=== perf: watches the machine's counters, for what siblings do
#: works
def attempt(): taken((298, 0, 0, -1, -1, 0))
=== userfaultfd: handles its own page faults, to halt the kernel where it reads
#: works
def attempt(): taken((323, 1))
=== keyrings: keeps data in the kernel's key rings
#: works
def attempt(): taken((250, 0, -3, 0), (248, 0, 0, 0, 0, -3), (249, 0, 0, 0, -3))
=== fanotify: sees the files that others open
#: works
def attempt(): taken((300, 0, 0), (301, -1, 0, 0, 0, 0))
=== kernel_modules: loads kernel modules and kernels
def attempt(): taken((175, 0, 0, 0), (313, -1, 0, 0), (246, 0, 0, 0, 0), (320, -1, -1, 0, 0, 0))
=== file_handles: opens files by handles, past their folders
#: works
def attempt(): taken((303, -100, 0, 0, 0, 0), (304, -1, 0, 0))
=== kernel_log: reads the kernel's log
def attempt(): taken((103, 10, 0, 0))
=== swap_and_quota: changes swap space, quotas and accounting
def attempt(): taken((167, 0, 0), (168, 0), (179, 0, 0, 0, 0), (163, 0))
=== reboots: asks for a restart, with numbers that ask for nothing
def attempt(): taken((169, 0, 0, 0, 0))
=== host_name: changes the host's name
def attempt(): taken((170, 0, -1), (171, 0, -1))
=== sets_the_clock: sets the machine's clock
def attempt(): taken((227, 0, 0), (164, 0, 0), (305, 0, 0), (159, 0))
=== ports: reads and writes the machine's ports
def attempt(): taken((172, 3), (173, 0, 1, 1))
=== another_personality: takes a memory layout that is not random
#: works
def attempt(): taken((135, 0x0040000))
=== local_descriptor_table: changes its segments
#: works
def attempt(): taken((154, 1, 0, 0))
=== compares_processes: asks what it shares with another process
def attempt(): taken((312, 1, 1, 0, 0, 0))
=== newest_calls: makes calls that are newer than the filter
def attempt(): taken(*[(number, -1, -1, -1, -1) for number in range(463, 600)])
=== x32_calls: makes system calls by the numbers of the x32 table
def attempt(): taken(*[((1 << 30) + number, 0, 0, 0) for number in (41, 57, 62, 101, 272)])
""",
        before=_CALLS,
        machine="x86_64",
    ),
    *attempts(
        r"""
=== old_calls: makes system calls by the table for 32 bits, whose numbers mean others (`int 0x80`)
#: on x86_64
import ctypes, mmap
def attempt():
    # mov eax, 20 (getpid); int 0x80; ret
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    if ctypes.CFUNCTYPE(ctypes.c_int)(address)() < 0: raise PermissionError(1, "refused")
=== filter_by_prctl: puts a filter of system calls on itself by the older call for it
#: works
import ctypes
def attempt():
    libc = ctypes.CDLL(None, use_errno=True)
    rule = ctypes.create_string_buffer(b"\x06\0\0\0\0\0\xff\x7f", 8)  # all calls are allowed
    rules = (ctypes.c_uint64 * 2)(1, ctypes.addressof(rule))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, rules, 0, 0): raise OSError(ctypes.get_errno(), "no filter")
=== terminal_input: types into its terminal
import fcntl, termios
def attempt():
    for fd in range(4):
        try: return fcntl.ioctl(fd, termios.TIOCSTI, b'x')
        except OSError as error: last = error
    raise last
""",
    ),
)
