"""What the package needs of the system around it: ranks, cores, environment, units, paths."""
