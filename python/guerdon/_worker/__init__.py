"""What runs where user code runs: in worker processes, and on the lanes' threads.

Imports nothing of guerdon outside this folder.
"""
