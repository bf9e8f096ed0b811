"""The version of the package, which the build reads."""

__version__ = "0.1.0"
