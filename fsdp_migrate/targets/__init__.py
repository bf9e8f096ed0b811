"""Targets: what a program can be moved to beyond a newer torch, a room for each; none of them knows another."""
