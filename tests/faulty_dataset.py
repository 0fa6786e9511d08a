"""A table and its images with all kinds of problems that a report shows.

    draw(folder)    writes the images, labels.csv and classes.txt; `FLAGS` convert them

Names and labels try to break out of a page: markup, control characters, right-to-left overrides.
"""

from __future__ import annotations

import csv
from pathlib import Path

from tests.images import image_bytes, jpeg, png

CLASSES = (
    "cat",
    "dog",
    "<script>document.title='broken'</script>",
    '"><img src=x onerror="document.title=\'broken\'">',
    "猫 Übermut",
    "a class whose name goes on and on, longer than any column can be, and_then_it_never_breaks_"
    * 2,
    "never seen",
)
GOOD = 72
COPIES = 5
GIFS = 3
BROKEN = {"truncated": 9, "corrupt": 2, "missing_file": 8, "not_an_image": 1, "malformed_row": 1}
SPLITS = ("--splits", "train=0.6,validation=0.2,test=0.2", "--num_shards", "train=3,test=1")


def draw(folder: Path) -> tuple[str, ...]:
    """Draws all files; returns the flags to convert them within the reject budget."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "classes.txt").write_text("".join(f"{name}\n" for name in CLASSES), "utf-8")
    rows = [*_good(folder), *_copies(folder), *_broken(folder)]
    with (folder / "labels.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("image", "label"), *rows])
        stream.write('00.jpg,"c"at\r\n')
    table, classes = str(folder / "labels.csv"), str(folder / "classes.txt")
    budget = str(sum(BROKEN.values()))
    return ("--input", table, "--classes", classes, *SPLITS, "--max_rejects", budget)


def _good(folder: Path) -> list[tuple[str, str]]:
    rows = []
    for i in range(GOOD):
        width, height = 90 + 7 * i, 400 - 4 * i
        name, data = f"{i:02d}.jpg", jpeg(width, height, i, quality=60)
        if i < GIFS:
            name, data = f"{i:02d}.gif", image_bytes("GIF", width, height, i, "P")
        elif i == GIFS:
            name, data = "<b>bold</b> & \u202egnp.png", png(64, 48, i, "RGBA")
            (folder / name).parent.mkdir()  # the slash of </b> makes a folder
        (folder / name).write_bytes(data)
        rows.append((name, CLASSES[min(i % 13, 5)]))
    return rows


def _copies(folder: Path) -> list[tuple[str, str]]:
    """Returns rows of duplicate images, one with another label."""
    rows = []
    for i in range(COPIES):
        original = f"{10 + i:02d}.jpg"
        (folder / f"copy {i}.jpg").write_bytes((folder / original).read_bytes())
        rows.append((f"copy {i}.jpg", CLASSES[i % 2]))
    return rows


def _broken(folder: Path) -> list[tuple[str, str]]:
    rows = []
    for i in range(BROKEN["truncated"]):
        whole = jpeg(300, 200, 500 + i)
        (folder / f"cut{i}.jpg").write_bytes(whole[: len(whole) * (i + 2) // 12])
        rows.append((f"cut{i}.jpg", "cat"))
    for i in range(BROKEN["corrupt"]):
        whole = bytearray(png(120, 80, i))
        whole[len(whole) // 2] ^= 255
        (folder / f"bad{i}.png").write_bytes(bytes(whole))
        rows.append((f"bad{i}.png", "dog"))
    rows += [(f"missing/{'x' * 50}{i}.jpg", "dog") for i in range(BROKEN["missing_file"])]
    (folder / "text.jpg").write_text("<html>404</html>")
    return [*rows, ("text.jpg", "cat")]
