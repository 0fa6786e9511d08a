"""The parser of the command line."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Collection, Sequence
from importlib import metadata
from typing import Any, NamedTuple, NoReturn, cast

from recordmill.schemas.config import GROUPS, ConvertConfig, SchemaOverrides
from recordmill.schemas.errors import UsageError, did_you_mean
from recordmill.schemas.option import DeclaredOption, options_of
from recordmill.transforms.storage.stores.options import add_store_flags, positive

# Shells for which `recordmill completion` prints a script.
SHELLS = ("bash", "zsh", "fish")

# Number of records that `inspect` shows by default: in tables, and on a contact sheet.
RECORDS, TILES = 5, 24

# The options of a conversion that `schema --infer` has, too.
INFER_OPTIONS = ("input_format", "delimiter", "header", "image_root", "columns")

# The heading of the flags that Beam declares for object stores, and of those for the web.
STORE_FLAGS = "object stores and the web"

_INVALID_CHOICE = re.compile(r".*invalid choice: '([^']*)' \(choose from (.*)\)$")
_QUOTED = re.compile(r"[\w.+-]+")


class Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError`, where argparse prints a message and exits."""

    _typed: Sequence[str] = ()
    common: frozenset[str] | None = None  # the options in the short help; None: all of them

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses the known flags, and remembers all for `error`."""
        self._typed = tuple(args or ())
        return super().parse_known_args(args, namespace)

    def format_help(self, complete: bool = False) -> str:
        """Returns the help: of the common flags, or the complete one.

        Even that lacks the flags of object stores, which would be most of it.
        """
        stores = [group for group in self._action_groups if group.title == STORE_FLAGS]
        hidden = [action for group in stores for action in group._group_actions]
        if self.common is not None and not complete:
            hidden += [action for action in self._actions if action.dest not in self.common]
        texts = [action.help for action in hidden]
        for action in hidden:
            action.help = argparse.SUPPRESS
        try:
            return super().format_help()
        finally:  # completion scripts have them
            for action, text in zip(hidden, texts, strict=True):
                action.help = text

    def error(self, message: str) -> NoReturn:
        """Raises a usage error."""
        _, is_missing, names = message.partition("arguments are required: ")
        for typed in self._typed if is_missing else ():
            flag = typed.partition("=")[0]
            is_unknown = flag.startswith("--") and flag not in self.flags()
            if is_unknown and did_you_mean(flag, names.split(", ")):
                raise self.unknown(flag)
        if is_missing and "--input" in names and self._typed and self._typed[0][:1] not in "-":
            raise self.unknown(self._typed[0])
        wrong = _INVALID_CHOICE.match(message)
        guess = did_you_mean(wrong[1], _QUOTED.findall(wrong[2])) if wrong else ""
        raise UsageError(f"{message}{guess}; see {self.prog} --help")

    def unknown(self, argument: str, flags: Sequence[str] = ()) -> UsageError:
        """Returns the error for an unknown argument.

        `flags`: known flags, one of which may be suggested; by default, those of the parser.
        """
        flag = argument.partition("=")[0]
        if not flag.startswith("-"):
            return UsageError(
                f"{argument}: is not the value of a flag, as in --input FILE. Quote values that "
                f"contain blanks or patterns, and repeat --input for each; see {self.prog} --help"
            )
        guess = did_you_mean(flag.replace("-", "_").replace("__", "--", 1), flags or self.flags())
        return UsageError(f"unknown flag {flag}{guess}; see {self.prog} --help")

    def flags(self) -> list[str]:
        """Returns all flags of this parser."""
        return [flag for action in self._actions for flag in action.option_strings]


class _Help(argparse.Action):
    """Prints the short help, or with `all` the complete one, and exits."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        parser._print_message(parser.format_help(complete=values is not None), sys.stdout)
        parser.exit()


class _Join(argparse.Action):
    """Joins the values of a repeated flag, each of which is a part of one mapping."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest, None)
        setattr(namespace, self.dest, values if before is None else f"{before},{values}")


def _add_convert_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = "recordmill convert --input PATTERN --output DIR --name NAME [FLAGS]"
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_convert_options(parser)
    parser.add_argument(
        "--dry_run",
        action="store_true",
        default=argparse.SUPPRESS,
        help="preview the conversion without writing anything",
    )


def add_convert_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a conversion. Options that are not given have no attribute."""
    groups = {name: parser.add_argument_group(name) for name in GROUPS}
    for declared in options_of(ConvertConfig, SchemaOverrides):
        _add_option(groups[declared.option.group], declared)


def _add_option(group: argparse._ActionsContainer, declared: DeclaredOption) -> None:
    flag = f"--{declared.name}"
    text = declared.help.replace("%", "%%")
    if declared.choices and declared.option.metavar:  # too many for the column of flags
        text += f"; one of {', '.join(declared.choices)}"
    absent: dict[str, Any] = {"default": argparse.SUPPRESS}
    if declared.is_switch and declared.field.default:
        group.add_argument(flag, action="store_true", help=f"{text} (default)", **absent)
        group.add_argument(
            f"--no_{declared.name}",
            dest=declared.name,
            action="store_false",
            help=f"the opposite of {flag}",
            **absent,
        )
    elif declared.is_switch:
        group.add_argument(flag, action="store_true", help=text, **absent)
    else:
        action: str | type[argparse.Action] = "append" if declared.is_repeated else "store"
        group.add_argument(
            flag,
            metavar=declared.option.metavar or None,
            choices=declared.choices,
            required=declared.field.is_required(),
            action=_Join if declared.is_mapping else action,
            help=text,
            **absent,
        )


# The options in the short help of `convert`.
_COMMON = frozenset((
    "help", "input", "input_format", "schema", "image_root", "columns", "labels", "join_on",
    "key_column", "classes", "sample", "image", "boxes", "output", "name", "version",
    "if_exists", "splits", "split_column", "group_column", "num_shards", "max_rejects",
    "dry_run", "json",
))  # fmt: skip

_EXAMPLES = """\
examples:
  recordmill convert --input photos/ --output datasets --name birds
  recordmill convert --input labels.csv --image_root photos \\
      --output datasets --name birds --splits train=0.9,test=0.1 --max_rejects 1%
  recordmill convert --input annotations.json --schema object_detection \\
      --output datasets --name birds --dry_run

All flags: recordmill convert --help=all. Others are Beam's own:
--runner=FlinkRunner --s3_endpoint_url=… For web addresses:
--allow_private_hosts --http_connections=16 --http_timeout=30
--max_image_bytes=268435456."""

_STORE_FLAGS = (
    "Object stores and the web: --s3_endpoint_url=… --azure_connection_string=… --hdfs_host=… "
    "--http_timeout=30"
)


def _add_verify_flags(parser: argparse.ArgumentParser) -> None:
    text = "dataset, folder of TFDS, or TFRecord files of any origin"
    parser.add_argument("paths", nargs="+", metavar="DIR|FILE", help=text)
    parser.add_argument("--decode", action="store_true", help="also decode every image")
    text = "write the intact records of damaged files to this new folder, with a list of the others"
    parser.add_argument("--salvage", metavar="DIR", help=text)
    parser.add_argument(
        "--schema", metavar="PRESET|FILE", help="schema that every record has to match"
    )


def _add_diff_flags(parser: argparse.ArgumentParser) -> None:
    text = "two or more datasets, oldest first; or DIR/NAME, for all of its versions"
    parser.add_argument("paths", nargs="+", metavar="DIR", help=text)
    parser.add_argument(
        "-n",
        type=int,
        default=5,
        metavar="N",
        help="number of examples per kind of difference; default: 5",
    )


def _add_inspect_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="DIR|FILE", help="dataset or TFRecord files")
    parser.add_argument(
        "-n",
        type=int,
        metavar="N",
        help=f"records to show; default: {RECORDS}, or {TILES} on a contact sheet",
    )
    parser.add_argument(
        "--record", type=int, metavar="N", help="show one record in full, by number from 0"
    )
    parser.add_argument("--key", metavar="K", help="show one record in full, by key")
    parser.add_argument("--sheet", metavar="FILE.png", help="draw a contact sheet")
    text = "schema of the records, which says what a contact sheet shows"
    parser.add_argument("--schema", metavar="PRESET|FILE", help=text)


def _add_schema_flags(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "schema", nargs="?", metavar="NAME|FILE|DIR", help="preset, schema file or dataset"
    )
    which.add_argument("--infer", metavar="TABLE", help="print a schema for a table, as YAML")
    group = parser.add_argument_group("for --infer, as for recordmill convert")
    for declared in options_of(ConvertConfig):
        if declared.name in INFER_OPTIONS:
            _add_option(group, declared)


def _add_versions_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR/NAME", help="folder of all versions of a dataset")


def _add_gc_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR/NAME", help="folder of all versions of a dataset")
    parser.add_argument(
        "--keep", type=positive, required=True, metavar="N", help="number of versions to keep"
    )
    parser.add_argument("--dry_run", action="store_true", help="list them, and delete nothing")


def _add_forget_flags(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "All other flags are Beam's own: --runner=FlinkRunner --s3_endpoint_url=…"
    parser.add_argument("directory", metavar="DIR", help="newest version of a dataset, or DIR/NAME")
    text = "keys of the records to remove: one per line, or a CSV or Parquet table"
    parser.add_argument("--keys", required=True, metavar="FILE", help=text)
    parser.add_argument("--column", metavar="C", help="column of the keys, if FILE is a table")
    parser.add_argument(
        "--version", metavar="X.Y.Z", help="the new version; default: the next number"
    )
    text = "ignore keys that no record has"
    parser.add_argument("--allow_missing", action="store_true", help=text)
    text = "delete all versions that still have the records"
    parser.add_argument("--purge", action="store_true", help=text)


def _add_completion_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def _add_log_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that every command has."""
    text = "print the result as one line of JSON, however the command ends"
    parser.add_argument("--json", action="store_true", help=text)
    parser.add_argument("--verbose", action="store_true", help="log progress and tracebacks")
    text = "format of log lines; default: text"
    parser.add_argument("--log_format", choices=("text", "json"), default="text", help=text)


class Command(NamedTuple):
    """A command."""

    text: str
    add_flags: Callable[[argparse.ArgumentParser], None]
    reads_stores: bool = True  # whether it has the flags of object stores
    runs_pipeline: bool = False  # whether its other flags are Beam's
    common: frozenset[str] | None = None  # the options in its short help; None if it has one help
    function: str = ""  # MODULE.FUNCTION in `recordmill.pipelines.commands`; by default, NAME.run


# The commands by name.
COMMANDS = {
    "convert": Command(
        "convert tables and images to a verified dataset",
        _add_convert_flags,
        reads_stores=False,
        runs_pipeline=True,
        common=_COMMON,
    ),
    "verify": Command("verify a dataset, or TFRecord files of any origin", _add_verify_flags),
    "inspect": Command("show records", _add_inspect_flags),
    "schema": Command("print a schema and code that reads it, or infer one", _add_schema_flags),
    "diff": Command("compare datasets by key", _add_diff_flags),
    "versions": Command("list the versions of a dataset", _add_versions_flags),
    "forget": Command(
        "make a version without some records",
        _add_forget_flags,
        reads_stores=False,
        runs_pipeline=True,
    ),
    "gc": Command("delete old versions of a dataset", _add_gc_flags, function="versions.gc"),
    "completion": Command(
        "print a script that completes commands and flags",
        _add_completion_flags,
        reads_stores=False,
    ),
}


_FIRST_STEPS = """\
first steps:
  recordmill convert --input photos/ --output datasets --name birds --dry_run
  recordmill verify FILE.tfrecord
  recordmill COMMAND --help"""


def program(with_flags: Collection[str] = tuple(COMMANDS)) -> Parser:
    """Returns the parser of the whole program.

    `with_flags` are the commands that get their flags; adding the flags of stores loads Beam.
    """
    parser = Parser(
        prog="recordmill",
        usage="recordmill COMMAND [FLAGS]",
        description="Converts label tables and images to verified TFRecord datasets.",
        epilog=_FIRST_STEPS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"recordmill {metadata.version('recordmill')}"
    )
    commands = parser.add_subparsers(
        title="commands", dest="command", required=True, metavar="COMMAND", prog="recordmill"
    )
    for name, command in COMMANDS.items():
        made = commands.add_parser(
            name, help=command.text, allow_abbrev=False, add_help=command.common is None
        )
        made.common = command.common
        if name in with_flags:
            _add_flags(made, command)
    return parser


def command_parser(parser: argparse.ArgumentParser, command: str) -> Parser:
    """Returns the parser of a command."""
    # argparse has no public access to the parsers of subcommands.
    choices = [action.choices for action in parser._actions if action.dest == "command"]
    return cast("dict[str, Parser]", choices[0])[command]


def _add_flags(parser: argparse.ArgumentParser, command: Command) -> None:
    if command.common is not None:
        text = "show the flags that most conversions need, or all"
        parser.add_argument(
            "-h",
            "--help",
            nargs="?",
            choices=("all",),
            action=_Help,
            default=argparse.SUPPRESS,
            help=text,
        )
    command.add_flags(parser)
    if command.reads_stores:
        add_store_flags(parser.add_argument_group(STORE_FLAGS))
        parser.epilog = _STORE_FLAGS
    _add_log_flags(parser)
