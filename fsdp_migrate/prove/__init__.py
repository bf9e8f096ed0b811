"""Runs the user's own program before and after its migration, and compares what every rank recorded."""
