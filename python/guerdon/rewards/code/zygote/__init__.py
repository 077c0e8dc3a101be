"""Programs on this machine: fences, a zygote that forks a process for each program, and one run."""
