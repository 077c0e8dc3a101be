"""Workers can import it. It ends the first two loaders of a zygote, and hangs later ones."""

import os
import sys
import tempfile
import time

from functions import work

__all__ = ["work"]

frame, callers = sys._getframe(), set()
while frame is not None:
    callers.add(frame.f_code.co_name)
    frame = frame.f_back
if "load_all" in callers:
    zygote = os.getppid()
    with open(f"/proc/{zygote}/stat", encoding="utf-8") as stat:
        started = stat.read().rsplit(")")[-1].split()[19]
    name = f"{tempfile.gettempdir()}/guerdon-loads-{zygote}-{started}"
    with open(name, "a", encoding="utf-8") as loads:
        loads.write("x")
        loads.flush()
        count = loads.tell()
    if count <= 2:
        os._exit(5)
    os.remove(name)
    time.sleep(600)
