"""One file a rule. A new file is found by itself; nothing is registered anywhere else."""
