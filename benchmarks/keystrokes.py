"""Check a text as often as asked, one character typed in between, as the language server does."""

import sys
from pathlib import Path

from fsdp_migrate.server.documents import Documents
from fsdp_migrate.workspace.settings import Layer


def main(file: str, times: int) -> None:
    """Check the text of a file `times` times."""
    text = Path(file).read_text(encoding="utf-8")
    documents = Documents(Layer(hints=True), isolated=True)
    for typed in range(times):
        documents.open(file, f"{text}#{'x' * typed}\n")
        documents.check(file)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
