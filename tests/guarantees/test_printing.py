"""Any text is printed literally: without control characters, markup or secrets."""

from __future__ import annotations

import ast
import io
import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipelines import dry_run
from recordmill.pipelines.command_line import main
from recordmill.pipelines.commands import convert, diff
from recordmill.pipelines.commands.inspect import _print_features, _print_record, _print_records
from recordmill.pipelines.commands.schema import _show_schema
from recordmill.pipelines.console import logs
from recordmill.pipelines.console.terminal import (
    Terminal,
    _printable_json,
    ignore_output_errors,
    lost_output,
    printable,
    printable_line,
    say,
)
from recordmill.pipelines.findings import Outcome, findings_of
from recordmill.pipelines.record_files import FoundRecord
from recordmill.schemas.features import Schema
from recordmill.schemas.manifest import BaseEntry, ClassDrift, Manifest, Share
from recordmill.schemas.masking import is_hidden, visible
from recordmill.schemas.plan import (
    Forecast,
    Plan,
    RejectSum,
    ResolvedSchema,
    SampleEstimate,
    SourceEntry,
)
from recordmill.schemas.rejects import Reason, Reject, reject_lines
from recordmill.schemas.row_counts import ShardCounts
from recordmill.schemas.statistics import Conflicts, DuplicateStats, GroupLeakage, Leakage
from recordmill.schemas.yaml_files import preset

ROOT = Path(__file__).parents[2]
HOSTILE = (
    "[/a]",
    "x[/y]",
    "[bold red]b",
    "\x1b]0;title\x07\x1b[2J",
    "\x9b31m",
    "evil\u202egpj.exe",
    "\udcff",
    ":smile:",
    "a\r\nb\tc",
    "\u2028",
)
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=20))


def is_clean(printed: str) -> bool:
    """Returns whether a text has no control characters except for line breaks."""
    return not any(is_hidden(c) for c in printed if c != "\n")


@given(TEXTS)
def test_a_printed_text_is_clean_and_a_clean_one_is_unchanged(text: str) -> None:
    assert is_clean(printable(text))
    assert "\n" not in printable_line(text)
    assert printable_line(text) == visible(text)
    printable(text).encode()


@given(TEXTS)
def test_a_document_is_clean_and_means_the_same(text: str) -> None:
    printed = _printable_json(json.dumps({"key": text}, ensure_ascii=False))
    assert is_clean(printed)
    assert json.loads(printed) == {"key": text}


def printed(show: Callable[[Terminal], object]) -> str:
    """Returns what is printed on a wide terminal."""
    stream = io.StringIO()
    show(Terminal(stream, width=10_000))
    return stream.getvalue()


def manifest_with(text: str) -> Any:
    """Returns as much of a manifest as a summary reads, a text wherever a table decides."""
    pair = (text, text)
    conflicts = Conflicts(images=1, records=2, examples=(pair,))
    content = DuplicateStats(
        images=1,
        duplicates={text: 1},
        leaks=(Leakage(splits=pair, images=1, records=2, examples=(pair,)),),
        conflicts=conflicts,
        dropped_conflicts=conflicts,
    )
    split = SimpleNamespace(
        shards=(),
        records=1,
        frames=None,
        rows=1,
        rejected=0,
        unchanged=0,
        classes={"label": {0: 1}},
    )
    counts = {text: 1}
    drift = ClassDrift(
        added=1, gone=1, changed=1, added_examples=(text,), changed_examples=((text, 0.1, 0.2),)
    )
    base = BaseEntry(
        version=text,
        manifest_sha256="",
        kept=counts,
        new=counts,
        gone=counts,
        shards_unchanged=1,
        classes={text: drift},
    )
    return Manifest.model_construct(
        input=SimpleNamespace(
            frames=None,
            unplaced=1,
            reasons={text: 1},
            duplicates=1,
            unchanged=0,
            asides={text: 1},
            records=1,
            rows=1,
        ),
        splits={text: split},
        sidecars={},
        config={"splits": {text: 1}, "group_column": text},
        classes={text: ("1", text)},
        dataset_schema=preset("image_classification"),
        images={f"{text} to jpeg": 1},
        content=content,
        base=base,
        group_leaks=GroupLeakage(groups=1, examples=((text, (text, text)),)),
        shares={text: Share(asked=0.2, actual=1.0)},
        source=source_with(text),
        name=text,
        version=text,
    )


def source_with(text: str) -> SourceEntry:
    """Returns a description of an input, with classes whose ids have changed."""
    return SourceEntry(recognized=(text,), class_ids={text: {text: 7}}, conflicts={text: text})


def show_summary(terminal: Terminal, text: str) -> None:
    """Prints the summary of a run."""
    record = SimpleNamespace(
        shards_reused=1,
        shards=2,
        shards_linked=0,
        records=1,
        seconds=1.0,
        reject_lines=reject_lines([{"source": text, "reason": "corrupt", "detail": text}]),
        findings=findings_of(Outcome(manifest_with(text), {text: [text]})),
    )
    convert._show_summary(terminal, record, manifest_with(text), text)


def show_diff(terminal: Terminal, text: str) -> None:
    """Prints the differences of two datasets."""
    side = SimpleNamespace(directory=text, manifest=manifest_with(text), splits=[text, text])
    found = SimpleNamespace(
        same=1,
        different=1,
        features={0: 1},
        moved=CounterLike({(0, 1): 1}),
        only_left=CounterLike({0: 1}),
        only_right=CounterLike({0: 1}),
        different_examples=(),
        moved_examples=(),
        left_examples=(),
        right_examples=(),
    )
    difference = SimpleNamespace(
        comparison=found, left=side, right=side, features=[text], notes=(text,), is_empty=False
    )
    diff._show_diff(terminal, difference)


class CounterLike(dict[Any, int]):
    """A mapping with a total."""

    def total(self) -> int:
        """Returns the sum of all counts."""
        return sum(self.values())


def show_forecast(terminal: Terminal, text: str) -> None:
    """Prints what a run would do."""
    reject = Reject(text, text, text, Reason.CORRUPT, text)
    resolved = ResolvedSchema(preset("image_classification"), {text: (text,)})
    plan = Plan(resolved, {text: 1}, 1, source=source_with(text))
    shard = ShardCounts(split=text, index=0, records=1, classes={text: {0: 1}})
    trial = SampleEstimate(1, 1, 1.0, (reject,), {text: 1})
    forecast = Forecast(plan, (shard,), {text: RejectSum(1, [reject])}, trial)
    config = SimpleNamespace(
        directory=text,
        index=False,
        sample=None,
        near_duplicates="keep_together",
        rename={},
        columns={"label": text},
    )
    dry_run.show_forecast(terminal, forecast, config)


def show_records_of(terminal: Terminal, text: str) -> None:
    """Prints a record, in a table and in full."""
    value = text.encode("utf-8", "surrogatepass")
    record = FoundRecord(text, 0, 0, b"", {text: [value], "label": [0]}, text, text)
    names = {"label": [text]}
    _print_features(terminal, [record])
    _print_records(terminal, [record], names)
    _print_record(terminal, record, names)


def show_schema_with(terminal: Terminal, text: str) -> None:
    """Prints a schema."""
    document = preset("tabular").model_dump() | {"name": text, "description": text}
    _show_schema(Schema.model_construct(**document), terminal)
    _show_schema(
        preset("image_classification").model_copy(update={"description": text}),
        terminal,
    )


SHEETS = [show_summary, show_diff, show_forecast, show_records_of, show_schema_with]


@pytest.mark.parametrize("show", SHEETS)
@given(text=TEXTS)
def test_every_sheet_prints_text_literally(
    show: Callable[[Terminal, str], None], text: str
) -> None:
    shown = printed(lambda terminal: show(terminal, text))
    assert is_clean(shown)
    assert visible(text) in shown


def test_what_an_encoding_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(shown, encoding="ascii"))
    monkeypatch.setattr("sys.stderr", io.StringIO())
    ignore_output_errors()
    say("naïve …")
    assert lost_output() is None
    assert shown.getvalue() == b"na\\xefve \\u2026\n"


def test_a_sheet_prints_no_secret() -> None:
    address = "https://me:hush@host/a.jpg?token=hush"
    for show in SHEETS:
        shown = printed(lambda terminal, show=show: show(terminal, address))
        assert "https://***@host/a.jpg?token=***" in shown
        assert "hush" not in shown


def test_a_message_of_bad_usage_is_clean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "t.csv"
    table.write_text("\x1b]0;owned\x07\x1b[2Jimage,[/b]\na.jpg,1\n")
    flags = ["--input", str(table), "--output", str(tmp_path / "out"), "--name", "x"]
    assert main(["convert", *flags]) == 2
    message = capsys.readouterr().err
    assert is_clean(message)
    assert "\\x1b]0;owned\\x07" in message


@pytest.mark.parametrize("flag", ["--input", "--image_root", "--classes", "--output", "--labels"])
def test_a_path_that_is_not_utf8_is_bad_usage(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "d\udcff")
    assert main(["convert", "--name", "x", flag, path]) == 2
    message = capsys.readouterr().err
    assert (
        message
        == f"recordmill: {tmp_path}/d\\udcff: is not valid UTF-8. Rename the file or folder.\n"
    )


def test_an_unknown_flag_is_named_without_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "tabular", "--s3_secret_acess_key=hush"]) == 2
    message = capsys.readouterr().err
    assert "--s3_secret_acess_key" in message
    assert "hush" not in message


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_log_line_is_clean(verbose: bool, as_json: bool) -> None:
    make = logs._Json if as_json else logs._Line
    text = "".join(HOSTILE) + " https://h/x?sig=hush"
    try:
        raise ValueError(text)
    except ValueError as error:
        raised = (type(error), error, error.__traceback__)
        event = logs.logging.LogRecord("x", 30, "f", 1, text, (), raised)
    line = make(verbose).format(event)
    assert is_clean(line)
    assert "hush" not in line


PRINTING = {"pipelines/console/printing.py", "pipelines/console/terminal.py"}
RICH = {"pipelines/console/terminal.py", "pipelines/run/progress.py"}
"""Progress is numbers and words of our own."""


def test_nothing_else_prints() -> None:
    found = []
    for package in ("schemas", "transforms", "pipelines"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            for node in ast.walk(ast.parse(path.read_text())):
                if (what := writes(node)) and name not in (RICH if what == "rich" else PRINTING):
                    found.append(f"{name}:{node.lineno}: {what}")
    assert found == []


def writes(node: ast.AST) -> str:
    """Returns what a piece of code prints by, or ""."""
    if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rich":
        return "rich"
    if isinstance(node, ast.Import) and any(n.name.split(".")[0] == "rich" for n in node.names):
        return "rich"
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if re.fullmatch(
            r"print|traceback\.print_\w+|(sys\.)?_*(stdout|stderr)_*\.write\w*", called
        ):
            return called
    return ""


def test_hidden_characters_are_all_controls_and_direction_marks() -> None:
    for code in (*range(32), *range(0x7F, 0xA0), 0x202E, 0x2066, 0x200F, 0xFEFF):
        assert is_hidden(chr(code)), unicodedata.name(chr(code), hex(code))


def test_a_record_of_many_features_is_listed_in_part() -> None:
    features: dict[str, list[Any]] = {f"{i:06}": [i] for i in range(20_000)}
    record, stream = FoundRecord("a", 0, 0, b"", features), io.StringIO()
    terminal = Terminal(stream, width=100)
    _print_features(terminal, [record])
    _print_records(terminal, [record], {})
    lines = [line.strip() for line in stream.getvalue().splitlines()]
    assert len(lines) == 1000 + 5
    assert lines[1000].split() == ["000999", "int64", "1", "999"]
    assert lines[1001] == "and 19,000 more features; see --record N"
    assert len(lines[-1]) < 1000
    assert lines[-1].endswith(", …; see --record N")
