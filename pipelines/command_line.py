"""The command line: `recordmill convert | verify | inspect | diff | schema | completion`."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from typing import cast, get_args

from rich.console import Console

from pipelines import convert, dry_run, dry_run_sheet
from pipelines.completion import SHELLS, completion_script
from pipelines.diff import diff
from pipelines.diff_sheet import as_json, show_diff
from pipelines.engines.submission import check_submission
from pipelines.engines.watch import watch
from pipelines.inspect.command import add_inspect_flags, inspect
from pipelines.interrupt import Interrupt, heed_signals
from pipelines.logs import use_log_flags
from pipelines.options import Parser, add_convert_flags, beam_options, config_of, load_schema
from pipelines.progress import progress
from pipelines.schema_inference import infer_schema
from pipelines.schema_sheet import show_schema
from pipelines.summary import show_summary
from pipelines.verify import read_manifest, verify_dataset, verify_files
from schemas.config import InputFormat, Verify
from schemas.dataset_info import Problem
from schemas.errors import ProofError, RunError
from schemas.masking import masked
from transforms.progress import PULSE
from transforms.stores.options import add_store_flags, use_options, use_store_flags

_NO_SETTINGS = ("command", "json", "dry_run", "typed", "verbose", "log_format")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code; what a user did wrong never shows a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        parser = _parser()
        flags, rest = parser.parse_known_args(arguments)
        if rest and flags.command != "convert":
            raise _command_parser(parser, flags.command).unknown(rest[0])
        flags.typed = arguments
        use_log_flags(flags.verbose, flags.log_format == "json")
        commands = {
            "convert": _convert,
            "verify": _verify,
            "inspect": _inspect,
            "diff": _diff,
            "schema": _schema,
            "completion": _completion,
        }
        return commands[flags.command](flags, rest)
    except RunError as error:
        if "--verbose" in arguments:
            print(masked("".join(traceback.format_exception(error))), end="", file=sys.stderr)
        print(f"recordmill: {masked(str(error))}", file=sys.stderr)
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
        epilog="Web addresses: --allow_private_hosts --http_connections=16 --http_timeout=30 "
        "--http_max_bytes=268435456. "
        "All other flags are Beam's own: --runner=FlinkRunner --s3_endpoint_url=…",
        allow_abbrev=False,
    )
    add_convert_flags(made)
    made.add_argument("--json", action="store_true", help="print one line of JSON at the end")
    proof = commands.add_parser("verify", help="prove a dataset again", allow_abbrev=False)
    _add_verify_flags(proof)
    apart = commands.add_parser("diff", help="compare two datasets by key", allow_abbrev=False)
    _add_diff_flags(apart)
    look = commands.add_parser("inspect", help="show records", allow_abbrev=False)
    add_inspect_flags(look)
    sheet = commands.add_parser("schema", help="print a schema, or guess one", allow_abbrev=False)
    _add_schema_flags(sheet)
    shell = commands.add_parser(
        "completion", help="print a script that completes commands and flags", allow_abbrev=False
    )
    shell.add_argument("shell", choices=SHELLS)
    for reading in (proof, apart, look, sheet):
        add_store_flags(reading)
    for each in (made, proof, apart, look, sheet, shell):
        _add_log_flags(each)
    return parser


def _add_verify_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="DIR|FILE", help="a dataset, or TFRecord files")
    parser.add_argument("--decode", action="store_true", help="decode every image, too")
    parser.add_argument(
        "--schema", metavar="PRESET|FILE", help="for files without a dataset: what they have to fit"
    )


def _add_diff_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("left", metavar="DIR", help="a published dataset")
    parser.add_argument("right", metavar="DIR", help="another")
    parser.add_argument("-n", type=int, default=5, metavar="N", help="examples of each sort")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


def _add_schema_flags(parser: argparse.ArgumentParser) -> None:
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


def _add_log_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verbose", action="store_true", help="log progress, tracebacks too")
    text = "of logged events, one a line; default: text"
    parser.add_argument("--log_format", choices=("text", "json"), default="text", help=text)


def _command_parser(parser: argparse.ArgumentParser, command: str) -> Parser:
    """Returns the parser of one command."""
    choices = [action.choices for action in parser._actions if action.dest == "command"]
    return cast("dict[str, Parser]", choices[0])[command]


def _convert(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    with heed_signals() as interrupt:
        try:
            return _converted(flags, rest, interrupt)
        except KeyboardInterrupt:
            raise interrupt.error() or RunError("interrupted") from None


def _converted(flags: argparse.Namespace, rest: Sequence[str], interrupt: Interrupt) -> int:
    values = {k: v for k, v in vars(flags).items() if k not in _NO_SETTINGS}
    is_dry = "dry_run" in flags
    options = beam_options(rest)
    use_options(options)  # the table may well be in a store
    config = config_of(values)
    check_submission(config, options)
    job = convert.prepare(config, options, ("recordmill", *flags.typed), is_dry)
    if job is None:
        text = f"{config.directory}: is published already; left as it is (--if_exists skip)"
        print(
            json.dumps({"state": "skipped", "exit_code": 0, "message": text})
            if flags.json
            else text
        )
        return 0
    if is_dry:
        return _dry_run(job, flags.json)
    with watch(job.target.progress, options) as look, progress(Console(stderr=True), look):
        record = convert.run(job, options, interrupt)
    if flags.json:
        print(record.model_dump_json())
    for warning in record.warnings:
        print(f"recordmill: warning: {warning}", file=sys.stderr)
    if record.exit_code or record.state == "submitted":
        print(f"recordmill: {masked(record.message)}", file=sys.stderr)
    elif not flags.json:
        manifest = read_manifest(config.directory)
        show_summary(Console(), record, manifest, config.directory)
    return record.exit_code


def _dry_run(job: convert.Conversion, as_line: bool) -> int:
    PULSE.reset()
    with progress(Console(stderr=True), lambda: PULSE):
        forecast = dry_run.dry_run(job)
    if as_line:
        print(json.dumps(dry_run_sheet.as_json(forecast, job.config), ensure_ascii=False))
    else:
        dry_run_sheet.show_forecast(Console(), forecast, job.config)
    dry_run.check(forecast, job.config)
    return 0


def _verify(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    use_store_flags(vars(flags))
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


def _diff(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    use_store_flags(vars(flags))
    difference = diff(flags.left, flags.right, max(0, flags.n))
    if flags.json:
        print(json.dumps(as_json(difference), ensure_ascii=False))
    else:
        show_diff(Console(), difference)
    return 0 if difference.is_none else ProofError.exit_code


def _inspect(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    use_store_flags(vars(flags))
    inspect(Console(), flags)
    return 0


def _schema(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    use_store_flags(vars(flags))
    if flags.infer is not None:
        print(infer_schema(flags.infer, flags.image_root, flags.input_format), end="")
    else:
        show_schema(Console(), load_schema(flags.schema))
    return 0


def _completion(flags: argparse.Namespace, rest: Sequence[str]) -> int:
    print(completion_script(_parser(), flags.shell))
    return 0
