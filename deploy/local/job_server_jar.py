"""Writes a jar that contains only a class path, so that `java -jar` loads other jars.

Used by engine.sh: job_server_jar.py JAR MAIN_CLASS FOLDER…
"""

import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

_LINE = 72  # bytes; https://docs.oracle.com/en/java/javase/17/docs/specs/jar/jar.html


def write_jar(jar: Path, main_class: str, folders: Sequence[Path]) -> None:
    """Writes the jar. Paths in the first folder are relative, all others are absolute.

    Args:
        jar: the jar to write, beside the first folder.
        main_class: class to run.
        folders: folders of the jars on the class path.
    """
    own, *others = (sorted(folder.glob("*.jar")) for folder in folders)
    names = [f"{path.parent.name}/{path.name}" for path in own]
    names += [path.resolve().as_uri() for paths in others for path in paths]
    entries = {"Manifest-Version": "1.0", "Main-Class": main_class, "Class-Path": " ".join(names)}
    manifest = "".join(f"{_folded(f'{k}: {v}')}\r\n" for k, v in entries.items()) + "\r\n"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", manifest)


def _folded(line: str) -> str:
    """Folds a line of a jar manifest to the maximum line length."""
    head, rest = line[: _LINE - 2], line[_LINE - 2 :]
    pieces = [rest[i : i + _LINE - 3] for i in range(0, len(rest), _LINE - 3)]
    return "\r\n ".join([head, *pieces])


if __name__ == "__main__":
    write_jar(Path(sys.argv[1]), sys.argv[2], [Path(folder) for folder in sys.argv[3:]])
