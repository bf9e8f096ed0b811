"""Edits become text: what LibCST is for, and nothing else."""
