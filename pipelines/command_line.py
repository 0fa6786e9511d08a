"""The command line: `recordmill convert | verify | schema`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib import metadata

from rich.console import Console

from pipelines import convert
from pipelines.options import Parser, add_convert_flags, beam_options, config_of, load_schema
from pipelines.progress import progress
from pipelines.runners import is_in_process
from pipelines.schema_sheet import show_schema
from pipelines.summary import show_summary
from pipelines.verify import read_manifest, verify_dataset, verify_files
from schemas.config import Verify
from schemas.dataset_info import Problem
from schemas.errors import ProofError, RunError, UsageError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code; what a user did wrong never shows a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        flags, rest = _parser().parse_known_args(arguments)
        if rest and flags.command != "convert":
            raise UsageError(f"unknown flag {rest[0]}; see recordmill {flags.command} --help")
        commands = {"convert": _convert, "verify": _verify, "schema": _schema}
        return commands[flags.command](flags, rest)
    except RunError as error:
        print(f"recordmill: {error}", file=sys.stderr)
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="recordmill",
        description="Label tables and images in, proven TFRecord datasets out.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=metadata.version("recordmill"))
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    made = commands.add_parser(
        "convert",
        help="make a dataset",
        epilog="All other flags are Beam's own: --runner=FlinkRunner --flink_master=…",
        allow_abbrev=False,
    )
    add_convert_flags(made)
    made.add_argument("--json", action="store_true", help="print one line of JSON at the end")
    proof = commands.add_parser("verify", help="prove a dataset again", allow_abbrev=False)
    proof.add_argument("paths", nargs="+", metavar="DIR|FILE", help="a dataset, or TFRecord files")
    proof.add_argument("--decode", action="store_true", help="decode every image, too")
    proof.add_argument("--schema", help="for files without a dataset: the preset or schema file")
    sheet = commands.add_parser("schema", help="print a schema", allow_abbrev=False)
    sheet.add_argument("schema", metavar="NAME|FILE")
    return parser


def _convert(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    values = {k: v for k, v in vars(flags).items() if k not in ("command", "json")}
    config = config_of(values)
    options = beam_options(rest)
    job = convert.prepare(config, options)
    if job is None:
        text = f"{config.directory}: is published already; left as it is (--if_exists skip)"
        print(
            json.dumps({"state": "skipped", "exit_code": 0, "message": text})
            if flags.json
            else text
        )
        return 0
    with progress(Console(stderr=True), watch=is_in_process(options)):
        record = convert.run(job, options)
    if flags.json:
        print(record.model_dump_json())
    if record.exit_code:
        print(f"recordmill: {record.message}", file=sys.stderr)
    elif not flags.json:
        manifest = read_manifest(config.directory)
        show_summary(Console(), record, manifest, config.directory)
    return record.exit_code


def _verify(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    verify: Verify = "decode" if flags.decode else "parse"
    if flags.schema is not None:
        records, problems = verify_files(flags.paths, load_schema(flags.schema), verify)
    else:
        records, problems = 0, list[Problem]()
        for directory in flags.paths:
            manifest, found = verify_dataset(directory, verify)
            records += manifest.input.records
            problems += found
    if problems:
        shown = "\n  ".join(str(problem) for problem in problems)
        raise ProofError(f"{' '.join(flags.paths)}: not proven:\n  {shown}")
    print(f"proven: {records:,} records in {' '.join(flags.paths)}")
    return 0


def _schema(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    show_schema(Console(), load_schema(flags.schema))
    return 0
