"""Programs on this machine: fences, the zygote that forks a process for each, and what it takes to run one."""
