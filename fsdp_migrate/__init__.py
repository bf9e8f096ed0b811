"""Find and rewrite PyTorch FSDP code that a newer torch deprecates, breaks or silently changes."""

__version__ = "0.1.0"
