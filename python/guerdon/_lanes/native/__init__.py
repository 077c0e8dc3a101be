"""Native reward functions, below `guerdon.rewards`: their plan for the engine, and the texts of a
batch's columns for kernels."""
