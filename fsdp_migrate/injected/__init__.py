"""What runs inside the user's own processes: to record a run (`prove`), and to see which calls it makes (`trace`).

Nothing here imports the rest of the package: the user's Python need not have it. This folder stands in PYTHONPATH, and
`sitecustomize` loads it as a package of the name `PACKAGE`.
"""
