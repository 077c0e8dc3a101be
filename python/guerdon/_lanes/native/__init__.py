"""Native reward functions, below `guerdon.rewards`: what the engine is told, and how the columns of
a batch become texts for kernels."""
