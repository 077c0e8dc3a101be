"""TRL's asynchronous GRPO trainer: many groups scored at once, and a server that may fail."""
