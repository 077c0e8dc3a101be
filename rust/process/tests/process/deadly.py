"""Ends the process that imports it."""

import os

os._exit(5)
