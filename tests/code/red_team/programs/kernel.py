"""System calls that no program under test needs: name spaces, mounts, rights, large interfaces.

Each is made with arguments that would do nothing: an answer other than "not permitted" or "not
implemented" says that the kernel took it up, and counts as success.
"""

from __future__ import annotations

from typing import Final

from tests.code.red_team.program import Program, attempt

_X86: Final = "x86_64"

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


def _calls(name: str, what: str, calls: str, *, works: bool = True) -> Program:
    return attempt(name, what, f"{_CALLS}def attempt(): taken({calls})\n", machine=_X86, works=works)


PROGRAMS: Final[tuple[Program, ...]] = (
    _calls(
        "new_namespaces",
        "makes name spaces of users, mounts and processes",
        "(272, 0x10000000), (272, 0x20000), (272, 0x20000000)",
    ),
    _calls(
        "clone_namespaces",
        "makes a thread or process in new name spaces",
        "(56, 0x10000000 | 17, 0, 0, 0, 0), (435, 0, 88)",
        works=False,
    ),
    _calls("enters_namespaces", "enters name spaces through descriptors", "(308, 0, 0)"),
    _calls(
        "mounts",
        "mounts, unmounts and moves file systems",
        "(165, 0, 0, 0, 0, 0), (166, 0, 0), (155, 0, 0), (442, -1, 0, 0, 0, 0)",
        works=False,
    ),
    _calls(
        "new_mounts",
        "opens file systems by the newer calls",
        "(430, 0, 0), (428, -1, 0, 0), (432, -1, 0, 0), (433, -1, 0, 0)",
    ),
    _calls("changes_its_root", "changes its root", '(161, b"/")', works=False),
    _calls(
        "changes_its_user",
        "takes another user and its rights back",
        "(105, 0), (106, 0), (117, 0, 0, 0), (113, 0, 0), (122, 0), (116, 0, 0)",
    ),
    _calls(
        "takes_capabilities",
        "gives itself capabilities",
        "(126, (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())",
    ),
    _calls(
        "io_uring",
        "does its calls through io_uring, past the filter",
        "(425, 1, 0), (426, -1, 0, 0, 0, 0), (427, -1, 0, 0, 0)",
    ),
    _calls(
        "reserved_requests",
        "takes the asynchronous requests that the whole machine may have under way",
        "(206, 1, (ctypes.c_ulong * 1)())",
    ),
    _calls("file_watches", "takes the watches that a user may have", "(253,), (294, 0)"),
    _calls("bpf", "loads programs into the kernel", "(321, 0, 0, 0)"),
    _calls("perf", "watches the machine's counters, for what siblings do", "(298, 0, 0, -1, -1, 0)"),
    _calls("userfaultfd", "handles its own page faults, to halt the kernel where it reads", "(323, 1)"),
    _calls(
        "keyrings", "keeps data in the kernel's key rings", "(250, 0, -3, 0), (248, 0, 0, 0, 0, -3), (249, 0, 0, 0, -3)"
    ),
    _calls("fanotify", "sees the files that others open", "(300, 0, 0), (301, -1, 0, 0, 0, 0)"),
    _calls(
        "kernel_modules",
        "loads kernel modules and kernels",
        "(175, 0, 0, 0), (313, -1, 0, 0), (246, 0, 0, 0, 0), (320, -1, -1, 0, 0, 0)",
        works=False,
    ),
    _calls("file_handles", "opens files by handles, past their folders", "(303, -100, 0, 0, 0, 0), (304, -1, 0, 0)"),
    _calls("kernel_log", "reads the kernel's log", "(103, 10, 0, 0)", works=False),
    _calls(
        "swap_and_quota",
        "changes swap space, quotas and accounting",
        "(167, 0, 0), (168, 0), (179, 0, 0, 0, 0), (163, 0)",
        works=False,
    ),
    _calls("reboots", "asks for a restart, with numbers that ask for nothing", "(169, 0, 0, 0, 0)", works=False),
    _calls("host_name", "changes the host's name", "(170, 0, -1), (171, 0, -1)", works=False),
    _calls(
        "sets_the_clock", "sets the machine's clock", "(227, 0, 0), (164, 0, 0), (305, 0, 0), (159, 0)", works=False
    ),
    _calls("ports", "reads and writes the machine's ports", "(172, 3), (173, 0, 1, 1)", works=False),
    _calls("another_personality", "takes a memory layout that is not random", "(135, 0x0040000)"),
    _calls("local_descriptor_table", "changes its segments", "(154, 1, 0, 0)"),
    _calls("compares_processes", "asks what it shares with another process", "(312, 1, 1, 0, 0, 0)", works=False),
    _calls(
        "newest_calls",
        "makes calls that are newer than the filter",
        "*[(number, -1, -1, -1, -1) for number in range(463, 600)]",
        works=False,
    ),
    attempt(
        "old_calls",
        "makes system calls by the table for 32 bits, whose numbers mean others (`int 0x80`)",
        """
import ctypes, mmap
def attempt():
    # mov eax, 20 (getpid); int 0x80; ret
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    if ctypes.CFUNCTYPE(ctypes.c_int)(address)() < 0: raise PermissionError(1, "refused")
""",
        machine=_X86,
    ),
    attempt(
        "x32_calls",
        "makes system calls by the numbers of the x32 table",
        _CALLS + "def attempt(): taken(*[((1 << 30) + number, 0, 0, 0) for number in (41, 57, 62, 101, 272)])",
        machine=_X86,
    ),
    attempt(
        "filter_by_prctl",
        "puts a filter of system calls on itself by the older call for it",
        """
import ctypes
def attempt():
    libc = ctypes.CDLL(None, use_errno=True)
    rule = ctypes.create_string_buffer(b"\\x06\\0\\0\\0\\0\\0\\xff\\x7f", 8)  # all calls are allowed
    rules = (ctypes.c_uint64 * 2)(1, ctypes.addressof(rule))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, rules, 0, 0): raise OSError(ctypes.get_errno(), "no filter")
""",
        works=True,
    ),
    attempt(
        "terminal_input",
        "types into its terminal",
        "import fcntl, termios\ndef attempt():\n    for fd in range(4):\n        try: return fcntl.ioctl(fd, termios.TIOCSTI, b'x')\n"
        "        except OSError as error: last = error\n    raise last",
    ),
)
