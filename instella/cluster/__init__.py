"""SLURM: what a site is called, what stages need there, and how ranks start and stop."""
