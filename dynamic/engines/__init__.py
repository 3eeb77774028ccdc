"""Where a candidate runs: on a GPU, as PTX on the CPU, or compiled only."""
