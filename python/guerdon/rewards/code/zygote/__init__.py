"""Programs on this machine: fences, and the zygote that forks a process for each."""
