"""The Python side of the asyncio lane: one loop, the functions on it, and what blocks it."""
