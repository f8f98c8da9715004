"""The HTML pages of commands: each is one file, and needs nothing else."""
