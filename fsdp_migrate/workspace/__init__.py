"""The files of a run: their contents, their projects with torch ranges and settings, and the facts of their modules."""
