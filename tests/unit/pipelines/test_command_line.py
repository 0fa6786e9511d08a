"""recordmill/pipelines/command_line.py: when a separate process is started to verify."""

from __future__ import annotations

import argparse
import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.pipelines import command_line
from recordmill.pipelines.command_line import _misspelled
from recordmill.pipelines.parser import command_parser, program
from recordmill.transforms.storage.stores.options import WebFlags, add_store_flags

CONVERT = ["convert", "--input", "a.csv", "--name", "birds", "--output"]


@pytest.mark.parametrize(
    ("arguments", "starts"),
    [
        ([*CONVERT, "out"], True),
        ([*CONVERT, "out", "--runner=DirectRunner"], True),
        ([*CONVERT, "out", "--runner", "FnApiRunner"], True),
        ([*CONVERT, "out", "--direct_running_mode=multi_threading"], True),
        ([*CONVERT, "out", "--direct_running_mode", "multi_processing"], False),
        ([*CONVERT, "out", "--runner=DataflowRunner"], False),
        ([*CONVERT, "out", "--runner=FlinkRunner", "--environment_type=LOOPBACK"], True),
        ([*CONVERT, "out", "--runner=FlinkRunner", "--environment_type=DOCKER"], False),
        ([*CONVERT, "s3://bucket/out"], False),
        ([*CONVERT, "out", "--dry_run"], False),
        (["verify", "out/birds/1.0.0", "--schema=tf_slim"], True),
        (["verify", "published/birds"], True),
        (["verify", "published/birds/1.0.0"], True),
        (["verify", "photos.tfrecord"], False),
        (["verify", "s3://bucket/out/birds/1.0.0"], False),
        (["inspect", "out/birds/1.0.0"], False),
    ],
)
def test_the_verifier_starts_where_workers_are_threads_and_files_are_local(
    arguments: list[str], starts: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "published/birds/1.0.0").mkdir(parents=True)
    (tmp_path / "published/birds/1.0.0/_SUCCESS").touch()
    monkeypatch.chdir(tmp_path)
    started: list[bool] = []
    monkeypatch.setattr(
        command_line.verifier_process,
        "verifier_process_started",
        lambda: nullcontext(started.append(True)),
    )
    monkeypatch.setattr(command_line, "_run", lambda command, flags: 0)
    assert command_line.main(arguments) == 0
    assert started == [True] * starts


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["covert", "--json"], 2),
        (["convert", "--json"], 2),
        ([*CONVERT, "out", "--json", "--splits", "train=x"], 2),
        (["verify", "nowhere", "--json"], 3),
        (["diff", "nowhere", "nowhere", "--json"], 2),
        (["inspect", "nowhere", "--json"], 2),
        (["schema", "nothing", "--json"], 2),
        (["schema", "tf_slim", "--json"], 0),
        (["completion", "bash", "--json"], 0),
    ],
)
def test_json_has_the_same_three_fields_however_a_command_ends(
    arguments: list[str],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command_line, "_verifier", lambda flags: nullcontext())
    assert command_line.main(arguments) == code
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (document["state"], document["exit_code"]) == ("failed" if code else "shown", code)
    assert err == (f"recordmill: {document['message']}\n" if code else "")


def test_events_need_no_valid_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["covert", "--log_format", "json"]) == 2
    assert json.loads(capsys.readouterr().err)["level"] == "ERROR"


def test_the_program_without_arguments_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main([]) == 0
    assert "convert" in capsys.readouterr().out


def test_an_error_of_a_file_system_is_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> int:
        raise PermissionError("http://h/k?sig=hush: access denied")

    monkeypatch.setattr(command_line, "_run", fails)
    assert command_line.main(["inspect", "x"]) == 1
    assert capsys.readouterr().err == "recordmill: http://h/k?sig=***: access denied\n"


def test_flags_like_our_own_are_unknown_before_beam_is_imported() -> None:
    parser = command_parser(program(["convert"]), "convert")
    rest = ["--splitz=a=1", "--runner=Flink", "--imput", "x", "--unlike_any"]
    assert _misspelled(rest, parser) == ["--splitz", "--imput"]
    of_beam = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
    for known in PipelineOptions.__subclasses__():
        if known.__module__ != PipelineOptions.__module__:
            continue  # of another runner, and unknown until that is imported
        known._add_argparse_args(of_beam)
    add_store_flags(of_beam, WebFlags)  # with those that Beam does not have
    flags = {flag for action in of_beam._actions for flag in action.option_strings}
    assert {"--s3_region_name", "--http_timeout", "--max_image_bytes"} <= flags
    assert _misspelled(sorted(flags - {*parser.flags()}), parser) == []
