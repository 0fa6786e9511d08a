"""Rejects: the closed list of reasons, and what is written of one."""

from __future__ import annotations

import json
import pickle

from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.rejects import MAX_DETAIL, Reason, RecordError, Reject


def test_the_list_of_reasons_is_closed():
    images = (
        "read_error empty_file not_an_image unsupported_format unsupported_feature truncated "
        "corrupt too_many_pixels invalid_dimensions animated timeout decoder_crash"
    )
    rows = (
        "lost_rows malformed_row missing_value wrong_type unknown_label unknown_split "
        "duplicate_key bad_box unmatched_join outside_root duplicate_order context_differs "
        "sequence_broken"
    )
    assert {reason.value for reason in Reason} == {*images.split(), *rows.split()}


def test_a_detail_is_as_long_as_a_reader_can_bear():
    short, long = "x" * MAX_DETAIL, "x" * (MAX_DETAIL + 1)
    for detail, expected in ((short, short), (long, f"{short[1:]}…")):
        assert RecordError(Reason.WRONG_TYPE, detail).detail == expected
        assert Reject("", "", "", Reason.WRONG_TYPE, detail).detail == expected


def test_an_error_crosses_processes_whole():
    error = pickle.loads(pickle.dumps(RecordError(Reason.CORRUPT, "got x")))  # noqa: S301
    assert type(error) is RecordError
    assert (error.reason, error.detail, str(error)) == (Reason.CORRUPT, "got x", "corrupt: got x")


def test_what_is_written_of_a_reject():
    reject = Reject('k"1', "/d/ü.jpg", "t.csv:7", Reason.WRONG_TYPE, "x\ny", split="train")
    assert reject.to_json() == (
        '{"key": "k\\"1", "uri": "/d/ü.jpg", "source": "t.csv:7", '
        '"reason": "wrong_type", "detail": "x\\ny"}'
    )


@given(st.text(), st.text(), st.text(), st.sampled_from(Reason), st.text())
def test_a_reject_is_one_line_that_comes_back_exactly(key, uri, source, reason, detail):
    line = Reject(key, uri, source, reason, detail).to_json()
    assert "\n" not in line
    expected = {"key": key, "uri": uri, "source": source, "reason": reason.value, "detail": detail}
    assert json.loads(line) == expected


def test_a_reject_can_be_written_in_utf_8_even_if_the_tables_name_is_none():
    # Python shows such names with lone surrogates, and a pattern finds them.
    line = Reject("", "", "t\udcff.csv:1", Reason.MALFORMED_ROW, "cut").to_json()
    assert json.loads(line.encode("utf-8"))["source"]
