"""Native reward functions, below `guerdon.rewards`: what the engine is told, how the columns of a
batch become texts for kernels, and the object in a dispatcher's list."""
