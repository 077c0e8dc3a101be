"""Sockets, and descriptors that were left open.

The test listens on a port of this machine and on an abstract name, given by the program's input.
"""

from __future__ import annotations

from typing import Final

from tests.code.red_team.program import Program, attempts, forgeries

PROGRAMS: Final[tuple[Program, ...]] = (
    *attempts(
        r"""
=== connects: connects to a port of this machine
import socket
def attempt():
    for port in (8080, 22, 80, 443, 8000, 6379):
        try: socket.create_connection(("127.0.0.1", port), 1).close()
        except ConnectionRefusedError: return
        except OSError as error: last = error
        else: return
    raise last
=== serves: listens on a port
#: works
import socket
def attempt():
    with socket.socket() as one:
        one.bind(('127.0.0.1', 0))
        one.listen()
=== resolves_names: resolves a name, and sends datagrams
import socket
def attempt():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one: one.sendto(b'x', ('127.0.0.1', 53))
=== unix_socket: makes a socket with a path in its own folder, and connects to those of services
#: works
import socket
def attempt():
    with socket.socket(socket.AF_UNIX) as one: one.bind('guerdon_red_team')
=== abstract_socket: makes a socket with an abstract name, which no folder guards
#: works
import socket
def attempt():
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(chr(0) + 'guerdon_red_team')
        one.listen()
=== datagrams_of_a_pair: makes a pair of datagram sockets, which can be addressed to any name
#: works
import socket
def attempt(): socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
=== netlink: asks the kernel for addresses, processes and packets
#: works
import socket
def attempt():
    for protocol in (0, 4, 9, 11, 15):
        try: return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol).close()
        except OSError as error: last = error
    raise last
=== odd_families: makes sockets of families that few programs need: packets, ciphers, machines, radio
#: works
import socket
def attempt():
    for family in (17, 38, 40, 31, 29, 44, 21, 5, 9):
        for kind in (1, 2, 3, 5):
            try: return socket.socket(family, kind).close()
            except PermissionError as error: last = error
            except OSError: pass
    raise last
=== inherited_descriptors: finds descriptors other than its own four
import os
def attempt():
    for fd in (*range(4, 1100), *range(4000, 4200)):
        try: os.fstat(fd)
        except OSError: continue
        return
    raise OSError(9, "none")
""",
    ),
    *forgeries(
        r"""
=== reopens_descriptors: opens its descriptors anew through `/proc` with other rights: writes its own input, reads its own output
import os
def add(a, b):
    found = []
    for fd in range(4):
        for path in (f"/proc/self/fd/{fd}", f"/dev/fd/{fd}"):
            try:
                again = os.open(path, os.O_RDWR | os.O_NONBLOCK)
                os.write(again, b"gold\n")
                found.append(os.read(again, 1000))
            except OSError: pass
    return found
if __name__ == "__main__": print(add(1, 2))
""",
        styles=("stdin", "calls"),
    ),
)
