"""Findings in a workspace, and the transactions that solve them. Nothing is written."""
