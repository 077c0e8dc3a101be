"""What a program under test must not be able to do: each act really tried, in a fenced child.

- An act that returns has succeeded; one that raises was refused.
- An act harms nothing where it succeeds: signal 0, files opened and never written to, files of its
  own made and removed, system calls with arguments that no kernel takes.
"""

from guerdon.rewards.code.zygote.acts.act import Act, Missing, Targets
from guerdon.rewards.code.zygote.acts.files import FILES
from guerdon.rewards.code.zygote.acts.kernel import KERNEL
from guerdon.rewards.code.zygote.acts.processes import PROCESSES
from guerdon.rewards.code.zygote.acts.resources import RESOURCES
from guerdon.rewards.code.zygote.acts.sockets import SOCKETS

__all__ = ["ACTS", "Act", "Missing", "Targets"]

ACTS: tuple[Act, ...] = (*FILES, *PROCESSES, *SOCKETS, *KERNEL, *RESOURCES)
