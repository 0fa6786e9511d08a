"""Generates the reference of options, reasons and formats, and the types of keywords.

python docs/options.py            writes the files
python docs/options.py --check    fails if a file is out of date
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BeforeValidator, ByteSize

from recordmill.pipelines.parser import COMMANDS, _add_log_flags
from recordmill.schemas.config import GROUPS, ConvertConfig, SchemaOverrides
from recordmill.schemas.features import Schema
from recordmill.schemas.input_formats import INPUT_FORMATS, UNREAD_TOOLS, InputFormat
from recordmill.schemas.option import Affects, DeclaredOption, _read_path, options_of
from recordmill.schemas.rejects import Reason, RejectBudget
from recordmill.schemas.shard_format import SHARD_FORMATS
from recordmill.schemas.tables import SPLIT
from recordmill.transforms.functional import sources
from recordmill.transforms.functional.values.boxes import BOX_COLUMNS
from recordmill.transforms.storage.stores.options import WebFlags, add_store_flags

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "cli.md"
REJECTS = ROOT / "docs" / "reference" / "rejects.md"
OUTPUT = ROOT / "docs" / "reference" / "output.md"
ANNOTATIONS = ROOT / "docs" / "reference" / "annotations.md"
README = ROOT / "README.md"
TYPES = ROOT / "schemas" / "convert_options.pyi"

_BEGIN, _END = "<!-- options: begin -->\n", "<!-- options: end -->\n"

_FLAG = re.compile(r"(--\w+( \w+=\w+%?)?)")

_ALSO_ACCEPTED = {
    ByteSize: "int | str",
    Decimal: "float | Decimal",
    NoneType: "None",
    RejectBudget: "int | str | RejectBudget",
    Schema: "StrPath | Schema",
}


def files() -> dict[Path, str]:
    """Returns the content of each generated file."""
    return {
        PAGE: page(),
        TYPES: types(),
        REJECTS: rejects(),
        OUTPUT: output(),
        ANNOTATIONS: annotations(),
        README: _between(README, "titles", _listed(known.title for known in _annotated().values())),
    }


_OWN_PARAMETERS = ("schema", "output", "name")


def types() -> str:
    """Returns the module that declares the keywords of the library for type checkers."""
    lines = [
        '"""The keywords of `convert()` and of the Beam transforms, written by docs/options.py."""',
        "",
        "from __future__ import annotations",
        "",
        "import os",
        "from collections.abc import Mapping, Sequence",
        "from decimal import Decimal",
        "from typing import Any, Literal, TypeAlias",
        "",
        "from typing_extensions import Required, TypedDict",
        "",
        "from recordmill.schemas.features import Schema",
        "from recordmill.schemas.rejects import RejectBudget",
        "",
        'StrPath: TypeAlias = "str | os.PathLike[str]"',
    ]
    rows = _names(Affects.ROW)
    of_convert = _names(Affects.SOURCE) - {"input"} | {*_OWN_PARAMETERS}
    others = {declared.name for declared in options()} - rows - of_convert - {"input"}
    for name, base, text, names in (
        ("RowOptions", "TypedDict, total=False", "that apply to a single row", rows),
        ("DatasetOptions", "RowOptions, total=False", "of rows from a pipeline", others),
        ("ConvertOptions", "DatasetOptions, total=False", "except for its input", of_convert),
    ):
        lines += ["", "", f"class {name}({base}):", f'    """Options of a conversion {text}."""']
        lines += ["", *_declarations(names)]
    return "\n".join([*lines, ""])


def _names(affects: Affects) -> set[str]:
    return {declared.name for declared in options() if declared.option.affects & affects}


def _declarations(names: Collection[str]) -> Iterator[str]:
    for declared in options():
        if declared.name in names:
            shown = keyword_type(declared)
            required = f"Required[{shown}]" if declared.field.is_required() else shown
            yield f"    {declared.name}: {required}"
            yield f'    """{declared.help}"""'


def options() -> Iterator[DeclaredOption]:
    """Yields the options of a conversion, group by group."""
    declared = list(options_of(ConvertConfig, SchemaOverrides))
    for group in GROUPS:
        yield from (option for option in declared if option.option.group == group)


def keyword_type(declared: DeclaredOption) -> str:
    """Returns the type that the keyword of an option accepts."""
    field = declared.field
    shown = "StrPath" if _is_path(field.metadata) else accepted(field.annotation)
    if declared.is_repeated:
        return f"{'StrPath' if declared.name == 'input' else 'str'} | {shown}"
    return f"StrPath | {shown}" if declared.option.metavar == "FILE" else shown


def _is_path(metadata: Iterable[Any]) -> bool:
    return any(isinstance(m, BeforeValidator) and m.func is _read_path for m in metadata)


def accepted(kind: Any) -> str:
    """Returns the source text of the type that a field accepts."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return "StrPath" if _is_path(arguments[1:]) else accepted(arguments[0])
    if origin is Literal:
        return f"Literal[{', '.join(map(_quoted, arguments))}]"
    if origin in (Union, UnionType):
        return " | ".join(map(accepted, arguments))
    if origin is dict:
        return f"Mapping[{', '.join(map(accepted, arguments))}]"
    if origin is tuple:
        return f"Sequence[{accepted(arguments[0])}]"
    return _ALSO_ACCEPTED.get(kind) or str(getattr(kind, "__name__", kind))


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def page() -> str:
    """Returns the command-line page, with new tables between the markers."""
    head, _, rest = PAGE.read_text("utf-8").partition(_BEGIN)
    parts = [head + _BEGIN]
    for group in GROUPS:
        rows = [_row(declared) for declared in options() if declared.option.group == group]
        heads = ("flag", "keyword", "default", "", "affects")
        parts.append(_section(f"convert: {group}", heads, rows))
    for name, command in COMMANDS.items():
        parser = argparse.ArgumentParser(add_help=False)
        command.add_flags(parser)
        known = {declared.name for declared in options() if name == "convert"}
        own = [_argument(action) for action in parser._actions if action.dest not in known]
        title = "convert: command line only" if name == "convert" else name
        parts.append(_section(title, ("argument", ""), own))
    for title, add_flags in (("every command", _add_log_flags), ("the web", _add_web_flags)):
        parser = argparse.ArgumentParser(add_help=False)
        add_flags(parser)
        parts.append(_section(title, ("argument", ""), map(_argument, parser._actions)))
    return "\n".join([*parts, _END]) + rest.partition(_END)[2]


def rejects() -> str:
    """Returns the page on rejects, with the table of reasons."""
    rows = ((f"`{each.value}`", _FLAG.sub(r"`\1`", each.meaning), each.remedy) for each in Reason)
    return _between(REJECTS, "reasons", "\n" + _table(("Reason", "Meaning", "Remedy"), rows))


def output() -> str:
    """Returns the page on output, with the table of the formats of shards."""
    heads = ("`--compression`", "Suffix", "`TFRecordDataset`", "TFDS", "Seekable", "Needs")
    rows = (
        (
            f"`{each.name}`",
            f"`{each.suffix}`" if each.suffix else "",
            "no" if each.tensorflow is None else f'`"{each.tensorflow}"`',
            "yes" if each.in_tfds else "no",
            "yes" if each.seekable else "no",
            " ".join(f"`{name}`" for name in each.packages),
        )
        for each in SHARD_FORMATS.values()
    )
    return _between(OUTPUT, "formats", "\n" + _table(heads, rows))


# The preset that is for a column of annotations.
_PRESETS = {
    "label": "image_classification",
    "labels": "multi_label",
    "xmin": "object_detection",
    "keypoints": "keypoints",
    "segmentation": "instance_segmentation",
    "corners": "oriented_boxes",
    "caption": "captioning",
}
_OF_IMAGES = ("image", "id", "height", "width")


def annotations() -> str:
    """Returns the page on annotations, with the tables of formats and of tools without one."""
    rows = [_format_row(name, known) for name, known in _annotated().items()]
    text = _table(("Format", "What it is", "Columns", "Presets"), rows)
    text += "\nThe first format of this order that recognizes a folder reads it.\n"
    unread = f"Not read, but recognized, are annotations of {_listed(UNREAD_TOOLS)}."
    return _between(ANNOTATIONS, "annotations", f"\n{text}\n{unread}\n")


def _annotated() -> dict[str, InputFormat]:
    return {name: known for name, known in INPUT_FORMATS.items() if known.title}


def _format_row(name: str, known: InputFormat) -> tuple[str, ...]:
    module = import_module(f"{sources.__name__}.{known.module}")
    what = (module.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    own = [c for c in module.COLUMNS if c not in (*BOX_COLUMNS, *_OF_IMAGES, SPLIT)]
    of_images = [column for column in _OF_IMAGES if column in module.COLUMNS]
    columns = f"boxes, `{' '.join(own)}`; `{' '.join(of_images)}`"
    presets = [preset for column, preset in _PRESETS.items() if column in module.COLUMNS]
    what = what.removeprefix("Reads ").rstrip(".")
    return f"`{name}`", what, f"{columns}, `{SPLIT}`", f"`{' '.join(presets)}`"


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}"


def _between(path: Path, name: str, text: str) -> str:
    """Returns a file with a text between its markers of a name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, rest = path.read_text("utf-8").split(begin)
    return f"{before}{begin}{text}{end}{rest.partition(end)[2]}"


def _section(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return f"## {title[0].upper()}{title[1:]}\n\n{_table(heads, rows)}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in rows:
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |")
    return "\n".join([*lines, ""])


def _row(declared: DeclaredOption) -> tuple[str, ...]:
    values = "|".join(declared.choices or ()) or declared.option.metavar
    flag = f"`--{declared.name} {values}`" if values else f"`--{declared.name}`"
    if declared.is_switch and declared.field.default:
        flag += f", `--no_{declared.name}`"
    default = "required" if declared.field.is_required() else declared.default
    kind = "str" if declared.choices else keyword_type(declared)
    affects = " ".join(str(each.name).lower() for each in Affects if each & declared.option.affects)
    return flag, f"`{kind}`", default, declared.option.help, affects


def _add_web_flags(parser: argparse.ArgumentParser) -> None:
    add_store_flags(parser, WebFlags)


def _argument(action: argparse.Action) -> tuple[str, str]:
    names = ", ".join(action.option_strings)
    values = "|".join(map(str, action.choices or ())) or action.metavar
    if not values and action.nargs != 0:
        values = "N" if action.option_strings else action.dest.upper()
    text = (action.help or "").replace("%%", "%")
    return f"`{' '.join(filter(None, (names, str(values or ''))))}`", text


def stale(expected: Mapping[Path, str]) -> list[Path]:
    """Returns the files that are out of date."""
    return [p for p, text in expected.items() if not p.exists() or p.read_text("utf-8") != text]


def main() -> int:
    """Writes or checks the generated files; returns the exit code."""
    parser = argparse.ArgumentParser(description="Generate files from the declared options.")
    parser.add_argument(
        "--check", action="store_true", help="only check whether they are up to date"
    )
    check = parser.parse_args().check
    for path in (found := stale(files())):
        print(f"{path.name}: run python docs/options.py" if check else f"wrote {path.name}")
        if not check:
            path.write_text(files()[path], encoding="utf-8")
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main())
