"""The exit codes are fixed: scripts depend on them."""

from __future__ import annotations

import pytest

from recordmill.schemas import errors


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("RecordmillError", 1),
        ("UsageError", 2),
        ("VerificationFailed", 3),
        ("RejectBudgetExceeded", 4),
        ("DatasetExists", 5),
    ],
)
def test_exit_codes(name, code):
    error = getattr(errors, name)("what, where, and what to do")
    assert isinstance(error, errors.RecordmillError)
    assert (error.exit_code, str(error)) == (code, "what, where, and what to do")
