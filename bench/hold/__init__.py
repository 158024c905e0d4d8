"""Attacks on a running server, and what they do to everybody else."""
