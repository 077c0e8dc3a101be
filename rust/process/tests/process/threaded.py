"""Starts a thread when it is imported: what has loaded this must not be forked."""

import threading
import time

from functions import work

__all__ = ["work"]

threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
