"""The command in a run record."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.pipelines.run import run_record
from recordmill.pipelines.run.run_record import RunContext, read_record
from recordmill.schemas.masking import masked_command


def test_secrets_are_masked_in_the_command() -> None:
    arguments = ["convert", "--s3_secret_access_key", "hush", "--azure_connection_string=hush"]
    arguments += ["--key_column", "id", "--token=hush", "--s3_access_key_id=hush"]
    assert "hush" not in " ".join(masked_command(arguments))
    assert RunContext.begin("x", arguments).command[4:6] == ("--key_column", "id")
    assert RunContext.begin("x").folder == ""


@pytest.mark.parametrize("error", [PermissionError("access denied (403)"), OSError("timed out")])
def test_only_a_missing_record_counts_as_deleted(
    error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_record(str(tmp_path)) is None
    (tmp_path / "run.json").write_bytes(b"{")
    assert read_record(str(tmp_path)) is None

    def fails(path: str) -> bytes:
        raise error

    monkeypatch.setattr(run_record, "read", fails)
    with pytest.raises(type(error)):
        read_record(str(tmp_path))
