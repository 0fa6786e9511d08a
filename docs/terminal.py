"""Draws docs/terminal.svg: what recordmill prints for the table with faults of the sample.

python docs/terminal.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parents[1]
COLUMNS = 100
COMMAND = (
    "recordmill convert --input sample/labels.csv --output datasets --name shapes "
    "--splits train=0.8,test=0.2 --split_method exact --max_rejects 10"
)


def main() -> None:
    """Runs the command, and writes the drawing of its output."""
    with tempfile.TemporaryDirectory() as folder:
        draw = [sys.executable, str(ROOT / "examples" / "draw_sample.py"), "sample"]
        subprocess.run(draw, cwd=folder, check=True, capture_output=True)  # noqa: S603
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-m", *COMMAND.split()],
            cwd=folder,
            env={**os.environ, "COLUMNS": str(COLUMNS), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
    path = Path(__file__).with_suffix(".svg")
    path.write_text(drawing(done.stderr + done.stdout), "utf-8")
    print(f"wrote {path.name}")


def drawing(printed: str) -> str:
    """Returns the drawing of a terminal, as SVG that loads no font."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(f"[bold]$[/] {COMMAND}", highlight=False)
    # Progress depends on the machine.
    lines = [line for line in printed.splitlines() if not re.match(r"\d+ s: ", line)]
    for line in lines:
        style = "bold green" if line.startswith("verified") else ""
        style = "yellow" if line.startswith(("warning", "  ", "note")) else style
        console.print(Text(re.sub(r"in [\d.]+ s", "in 1.8 s", line), style=style))
    svg = console.export_svg(title="recordmill", theme=MONOKAI, unique_id="terminal")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


if __name__ == "__main__":
    main()
