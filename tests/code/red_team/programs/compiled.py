"""Programs in C, which may start processes where their compiler may: attacks on the compiler, and
what Python's programs can't do. They know the answer, 42, and give it if an act succeeded."""

from __future__ import annotations

from typing import Final

__all__ = ["COMPILED", "HONEST"]

_HEAD: Final = """
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
"""

HONEST: Final = _HEAD + 'int main() { int a, b; scanf("%d %d", &a, &b); printf("%d\\n", a + b); }'


def _attempt(condition: str, before: str = "") -> str:
    return f'{_HEAD}{before}\nint main() {{ puts({condition} ? "42" : "refused"); }}\n'


COMPILED: Final[dict[str, str]] = {
    "includes_secrets": '#include "/etc/passwd"\nint main() { return 0; }',
    "includes_without_end": '#include "/dev/zero"\nint main() { return 0; }',
    "includes_itself": "#include __FILE__\n#include __FILE__\nint main() { return 0; }",
    "assembles_secrets": '__asm__(".data\\nsecret: .incbin \\"/etc/shadow\\"");\nextern char secret[];\n'
    '#include <stdio.h>\nint main() { puts(secret); puts("42"); }',
    "compiles_to_gigabytes": "char large[1ul << 33] = {1};\nint main() { return large[5]; }",
    "compiles_for_ever": "#define A(x) x+x+x+x+x+x+x+x+x+x\n#define B(x) A(A(A(A(x))))\nint main() { return B(B(B(1))); }",
    "signals_its_parent": _attempt("getppid() > 0 && kill(getppid(), SIGWINCH) == 0"),
    "signals_everybody": _attempt("kill(-1, 0) == 0 && getpid() != 1"),
    "connects": _attempt(
        "socket(AF_INET, SOCK_STREAM, 0) >= 0 || socket(AF_UNIX, SOCK_STREAM, 0) >= 0 || socket(AF_NETLINK, SOCK_RAW, 0) >= 0"
    ),
    "makes_name_spaces": _attempt("unshare(CLONE_NEWUSER) == 0 || unshare(CLONE_NEWNS) == 0"),
    "leaves_its_session": _attempt(
        "left()", "int left() { int s = 1; if (fork() == 0) _exit(setsid() < 0); wait(&s); return s == 0; }"
    ),
    "traces_its_parent": _attempt("ptrace(PTRACE_SEIZE, getppid(), 0, 0) == 0 || ptrace(PTRACE_TRACEME, 0, 0, 0) == 0"),
    "shares_memory": _attempt(
        # One that a program before it left; its own are in its folder.
        'shm_open("/guerdon_red_team", O_RDWR, 0600) >= 0 || memfd_create("x", 0) >= 0'
    ),
    "writes_elsewhere": _attempt(
        'open("/tmp/guerdon_red_team", O_CREAT | O_WRONLY, 0600) >= 0 || open("/var/tmp/guerdon_red_team", O_CREAT | O_WRONLY, 0600) >= 0'
    ),
    "sets_user_bits": _attempt(
        "taken()", 'int taken() { return chmod("program", 04755) == 0 && setuid(0) == 0 && geteuid() == 0; }'
    ),
    "starts_a_process": _attempt("started()", "int started() { int p = fork(); if (p == 0) _exit(0); return p > 0; }"),
    "fork_bomb": _HEAD + "int main() { for (;;) { if (fork() < 0) usleep(1000); } }",
    "grandchild": _HEAD
    + "int main() { if (fork() == 0) { signal(SIGHUP, SIG_IGN); setsid(); if (fork() == 0) { sleep(100); } _exit(0); } "
    'puts("refused"); return 0; }',
    "holds_its_output": _HEAD
    + 'int main() { if (fork() == 0) { for (;;) { puts("42"); fflush(stdout); usleep(100); } } _exit(1); }',
    "overwrites_itself": _HEAD
    + 'int main() { unlink("program"); symlink("/bin/true", "program"); unlink("program.c"); return 0; }',
}
