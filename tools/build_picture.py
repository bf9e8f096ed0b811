"""Write docs/lint.svg, the picture in the README: a real run in a terminal.

python -m tools.build_picture
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

COMMAND = "python -m tools.build_picture"
ROOT = Path(__file__).resolve().parent.parent
PICTURE = Path("docs") / "lint.svg"
SHOWN = "fsdp-migrate lint example"
_COLUMNS = 100


def main() -> None:
    """Bring the picture up to date."""
    (ROOT / PICTURE).write_text(picture(), encoding="utf-8", newline="\n")


def picture() -> str:
    """The picture of a run, as SVG."""
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(_COLUMNS)}
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CI")} | terminal
    command = [sys.executable, "-m", *SHOWN.replace("-", "_", 1).split(), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(f"[bold green]$[/] {SHOWN}", highlight=False)
    console.print(Text.from_ansi(done.stdout), end="")
    return console.export_svg(title="", theme=MONOKAI, unique_id="lint")


if __name__ == "__main__":
    main()
