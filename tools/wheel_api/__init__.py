"""Reads the API of a torch release out of its wheel, with `ast` alone."""
