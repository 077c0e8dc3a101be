"""What a program under test must not be able to do: each act really tried, in a fenced child.

- An act that returns has succeeded; one that raises was refused.
- An act harms nothing where it succeeds: signal 0, files opened and never written to, files of its
  own made and removed, system calls with arguments that no kernel takes.
"""

from guerdon._code.acts.act import Act, Missing, Targets
from guerdon._code.acts.files import FILES
from guerdon._code.acts.kernel import KERNEL
from guerdon._code.acts.processes import PROCESSES
from guerdon._code.acts.resources import RESOURCES
from guerdon._code.acts.sockets import SOCKETS

__all__ = ["ACTS", "Act", "Missing", "Targets"]

ACTS: tuple[Act, ...] = (*FILES, *PROCESSES, *SOCKETS, *KERNEL, *RESOURCES)
