"""Floods: memory, threads, files, output, time."""

from __future__ import annotations

from typing import Final

from tests.code.red_team.program import Program, attempts, forgeries

PROGRAMS: Final[tuple[Program, ...]] = (
    *attempts(
        r"""
=== eight_gigabytes: takes 8 GB at once
def attempt(): return bytearray(8 << 30)
=== gigabytes_by_and_by: takes 2 GB, 16 MB at a time
def attempt():
    held = []
    for _ in range(128): held.append(bytearray(16 << 20))
=== gigabytes_of_mappings: maps 4 GB in ways that count differently: shared, reserved, private
#: works
import mmap
def attempt():
    for flags in (mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000):
        try: mmap.mmap(-1, 4 << 30, flags=flags)
        except OSError as error: last = error
        else: return
    raise last
=== thread_bomb: starts 3000 threads
import threading
def attempt():
    wait = threading.Event()
    threads = []
    threading.stack_size(65536)
    try:
        for _ in range(3000):
            threads.append(threading.Thread(target=wait.wait, daemon=True))
            threads[-1].start()
    finally: wait.set()
=== disk_flood: writes 1 GB to the folders that it may write to
import os
def attempt():
    written = 0
    last = None
    for place in (".", "/tmp", "/dev/shm", "/var/tmp"):
        names = []
        try:
            for number in range(64):
                names.append(f"{place}/guerdon_red_team{number}")
                with open(names[-1], "xb") as file:
                    for _ in range(16): written += file.write(bytes(1 << 20))
        except OSError as error: last = error
        finally:
            for name in names:
                try: os.unlink(name)
                except OSError: pass
        if written > 300 << 20: return
    raise last
=== one_large_file: makes a file of a terabyte that holds nothing
import os
def attempt():
    with open('guerdon_red_team', 'xb') as file: file.truncate(1 << 40)
    os.unlink('guerdon_red_team')
=== inode_flood: makes 20 000 files
import os
def attempt():
    names = []
    try:
        for number in range(20_000):
            open(f"guerdon_red_team{number}", "x").close()
            names.append(f"guerdon_red_team{number}")
    finally:
        for name in names: os.unlink(name)
=== descriptor_flood: opens 5000 descriptors
import os
def attempt():
    for _ in range(2500): os.pipe()
=== pipes_full_of_data: keeps data in pipes and sockets, which no limit of memory counts
import fcntl, os, socket
def attempt():
    held = 0
    while held < 1 << 30:
        a, b = os.pipe()
        fcntl.fcntl(a, 1031, 1 << 20)
        os.set_blocking(b, False)
        try:
            while True: held += os.write(b, bytes(65536))
        except BlockingIOError: pass
=== locks_memory: locks its memory
import ctypes
def attempt():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(3) or libc.mlock(ctypes.create_string_buffer(1 << 20), 1 << 20): raise OSError(ctypes.get_errno(), 'mlock')
""",
    ),
    *forgeries(
        r"""
=== output_flood: prints for ever
while True: print('x' * 65536)
=== error_flood: prints to standard error for ever
import sys
while True: sys.stderr.write('x' * 65536)
=== flood_without_end: prints from threads while it ends, and from what runs at exit
import atexit, os, threading
def flood():
    while True: os.write(1, b'x' * 65536)
atexit.register(flood)
threading.Thread(target=flood).start()
=== prints_in_calls: prints for ever while it is called, where nobody reads
#: by calls check
def add(a, b):
    for _ in range(2000): print('x' * 65536)
    return 0
=== endless_loop: loops
#: hangs
while True: pass
=== endless_sleep: sleeps
#: by calls; hangs
import time
def add(a, b): time.sleep(1000)
=== slow_c_code: computes in C code that no signal interrupts
#: hangs
print(10 ** (10 ** 9) % 7)
=== slow_pattern: matches a pattern that takes for ever
#: hangs
import re
print(re.match('(a+)+$', 'a' * 64 + 'b'))
=== late_answer: answers when the time is over
#: by calls; hangs
import time
def add(a, b):
    time.sleep(1.2)
    return 'late'
=== keys_of_one_hash: returns sets of sets whose keys all have one hash: comparing two takes 10^10 steps
#: by calls check
MODULUS = (1 << 61) - 1
def add(a, b):
    inner = [[(at * 300 + n + 1) * MODULUS for n in range(300)] for at in range(300)]
    return [frozenset(keys) for keys in inner] if a == 40 else Keys(map(frozenset, inner))
class Keys(set):
    def __init__(self, keys): self.keys = list(keys)
    def __len__(self): return len(self.keys)
    def __iter__(self): return iter(self.keys)
try:
    import guerdon.rewards.code.child.encoding as encoding
    def container(value, out, bounds, depth): encoding._items(b"e", len(value), iter(value), out, bounds, depth)
    encoding._WRITERS[Keys] = container
except ImportError: pass
=== nothing_many_times: returns a million empty sets, which take far more memory than their bytes
#: by calls check
def add(a, b): return [set() for _ in range(1_200_000)]
=== large_integer: returns an integer of 60 million bits
#: by calls check
def add(a, b): return 1 << 60_000_000
""",
        styles=("stdin",),
    ),
    *forgeries(
        "\n=== slow_compile: is nested so deeply that compiling it takes the stack\n",
        styles=("stdin", "calls"),
        after="(" * 5000 + "1" + ")" * 5000,
    ),
    *forgeries(
        "\n=== large_constant: has a constant that compiling makes large\n#: hangs\n",
        styles=("stdin", "calls"),
        after="x = " + "1" * 5_000_000,
    ),
)
