"""Access to the surrounding system: ranks, cores, environment, units, paths."""
