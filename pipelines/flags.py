"""The flags of each command; what they amount to is for `recordmill.pipelines.options`.

Nothing here loads Beam: `--help` answers at once.
"""

from __future__ import annotations

import argparse
from typing import get_args

from recordmill.schemas.config import InputFormat

SHELLS = ("bash", "zsh", "fish")
"""Those for which there is completion."""

RECORDS, TILES = 5, 24
"""How many records `inspect` shows, and how many on a contact sheet, unless it is told."""

_CHOICES = {
    "input_format": get_args(InputFormat),
    "compression": ("none", "gzip"),
    "decode": ("full", "header"),
    "deduplicate": ("none", "content"),
    "verify": ("parse", "decode"),
    "if_exists": ("fail", "skip", "replace"),
}

_SWITCHES = ("index", "dry_run", "allow_outside_root")


def add_convert_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill convert`."""
    parser.epilog = _OTHER_FLAGS
    add_setting_flags(parser)
    parser.add_argument("--json", action="store_true", help="print one line of JSON at the end")


def add_setting_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the settings of a conversion, for `config_of`; one that is not given is not set."""
    for name, value, text in (
        ("report", True, "write report.html beside the shards (default)"),
        ("no_report", False, "write none"),
    ):
        parser.add_argument(
            f"--{name}",
            dest="report",
            action="store_const",
            const=value,
            help=text,
            default=argparse.SUPPRESS,
        )
    for group, flags in _CONVERT_FLAGS.items():
        section = parser.add_argument_group(group)
        for name, (metavar, text) in flags.items():
            if name in _SWITCHES:
                section.add_argument(
                    f"--{name}", action="store_true", help=text, default=argparse.SUPPRESS
                )
                continue
            section.add_argument(
                f"--{name}",
                metavar=None if name in _CHOICES else metavar,
                choices=_CHOICES.get(name),
                help=text,
                default=argparse.SUPPRESS,
                required=name in ("input", "output", "name"),
                action="append" if name == "input" else "store",
            )


_OTHER_FLAGS = (
    "Web addresses: --allow_private_hosts --http_connections=16 --http_timeout=30 "
    "--max_image_bytes=268435456. "
    "All other flags are Beam's own: --runner=FlinkRunner --s3_endpoint_url=…"
)

_CONVERT_FLAGS: dict[str, dict[str, tuple[str, str]]] = {
    "input": {
        "input": (
            "PATTERN",
            "a table, a folder, or a pattern of files; may be given more than once",
        ),
        "input_format": ("FORMAT", "default: told by the name and the content"),
        "schema": ("PRESET|FILE", "default: image_classification"),
        "image_root": (
            "DIR",
            "base of relative image paths, and fence of all; default: the table's folder",
        ),
        "allow_outside_root": ("", "let image paths and links lead out of --image_root"),
        "columns": ("S=T,…", "schema column = table column, where the names differ"),
        "labels": ("PATTERN", "a second table, joined to the input"),
        "join_on": ("C", "the column of both that they are joined on"),
        "key_column": ("C", "the rows' identity; default: the image path as written"),
        "image": ("K=V,…", "settings of the schema's image block: max_side=512,format=jpeg,…"),
        "boxes": ("K=V,…", "settings of the boxes block: order=xywh,units=normalized,…"),
        "masks": ("K=V,…", "settings of the masks block: bit_depth=16,frame=stored,…"),
        "label_offset": ("0|1", "1 leaves id 0 to the background; default: as the schema says"),
        "classes": ("FILE", "class names, one a line; default: the names found, sorted"),
    },
    "output": {
        "output": ("DIR", "the dataset goes to DIR/NAME/VERSION"),
        "name": ("NAME", "letters, digits and _"),
        "version": ("X.Y.Z", "default: 1.0.0"),
        "base": ("DIR", "an earlier version: its rows keep their splits, its shards are reused"),
        "compression": ("C", "default: none; TFDS reads no gzip"),
        "if_exists": ("WHAT", "what to do with a published dataset; default: fail"),
        "index": ("", "write idx/ too: offset and length of each record, for DALI and PyTorch"),
    },
    "placement": {
        "splits": ("train=0.9,…", "weights; default: all to train"),
        "split_column": ("C", "a row's own split wins"),
        "group_column": ("C", "rows with one value land in one split: patient, video, place"),
        "num_shards": ("auto|N|S=N,…", "per split; default: auto, by size"),
        "shard_size": ("SIZE", "of a shard, for auto; default: 128MiB"),
        "records_per_shard": ("N", "in place of a number or size of shards"),
        "deduplicate": ("WHAT", "content: of rows with one image keep one; default: none"),
        "seed": ("N", "another seed, another split and order; default: 0"),
    },
    "checks": {
        "decode": ("HOW", "full reads every coded bit, header only the size; default: full"),
        "verify": ("HOW", "parse every record, or decode every image, too; default: parse"),
        "image_timeout": ("SECONDS", "that decoding one image may take; default: 60"),
        "max_rejects": (
            "N|P%,…",
            "more rejects than this fail the run, 10,truncated=5,read_error=1%%; default: 0",
        ),
        "dry_run": ("", "tell what would be done, and write nothing"),
    },
}


def add_verify_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill verify`."""
    parser.add_argument("paths", nargs="+", metavar="DIR|FILE", help="a dataset, or TFRecord files")
    parser.add_argument("--decode", action="store_true", help="decode every image, too")
    parser.add_argument(
        "--schema", metavar="PRESET|FILE", help="for files without a dataset: what they have to fit"
    )


def add_diff_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill diff`."""
    parser.add_argument("left", metavar="DIR", help="a published dataset")
    parser.add_argument("right", metavar="DIR", help="another")
    parser.add_argument("-n", type=int, default=5, metavar="N", help="examples of each sort")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


def add_inspect_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill inspect`."""
    parser.add_argument("paths", nargs="+", metavar="DIR|FILE", help="a dataset, or TFRecord files")
    parser.add_argument(
        "-n",
        type=int,
        metavar="N",
        help=f"records to show; default: {RECORDS}, on a sheet {TILES}",
    )
    parser.add_argument("--record", type=int, metavar="N", help="one record in full, from 0")
    parser.add_argument("--key", metavar="K", help="one record in full, by its key")
    parser.add_argument("--sheet", metavar="FILE.png", help="draw a contact sheet")
    parser.add_argument("--schema", metavar="PRESET|FILE", help="what to hold the records against")


def add_schema_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill schema`."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("schema", nargs="?", metavar="NAME|FILE")
    which.add_argument("--infer", metavar="TABLE", help="write a schema for a table, as YAML")
    parser.add_argument("--image_root", metavar="DIR", help="for --infer: base of relative paths")
    parser.add_argument(
        "--input_format",
        default="auto",
        choices=get_args(InputFormat),
        help="for --infer; default: told by the name and the content",
    )


def add_completion_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `recordmill completion`."""
    parser.add_argument("shell", choices=SHELLS)


def add_log_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that every command has."""
    parser.add_argument("--verbose", action="store_true", help="log progress, tracebacks too")
    text = "of logged events, one a line; default: text"
    parser.add_argument("--log_format", choices=("text", "json"), default="text", help=text)
