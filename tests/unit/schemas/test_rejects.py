"""Rejects: the closed list of reasons, and the written form of a reject."""

from __future__ import annotations

import json
import pickle

from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.rejects import MAX_DETAIL, Reason, RecordError, Reject, reject_lines


def test_each_reason_has_a_meaning_and_a_remedy():
    assert [each for each in Reason if not (each.meaning and each.remedy)] == []


def test_reports_do_not_show_what_was_removed():
    assert not Reason.REMOVED_KEY.has_pixels


def test_a_reason_is_its_name():
    assert Reason("timeout") is Reason.TIMEOUT == "timeout"
    assert pickle.loads(pickle.dumps(Reason.TIMEOUT)) is Reason.TIMEOUT  # noqa: S301


def test_a_long_detail_is_truncated():
    short, long = "x" * MAX_DETAIL, "x" * (MAX_DETAIL + 1)
    for detail, expected in ((short, short), (long, f"{short[1:]}…")):
        assert RecordError(Reason.WRONG_TYPE, detail).detail == expected
        assert Reject("", "", "", Reason.WRONG_TYPE, detail).detail == expected


def test_long_locations_are_truncated_before_the_line():
    short, long = "x" * 8192, "y" * 9000
    reject = Reject(long, short, f"{long}:17", Reason.WRONG_TYPE, "")
    assert reject.uri == short
    assert len(reject.key) == len(reject.source) == 8192
    assert reject.source.endswith("yyy:17")


def test_a_reject_is_shown_on_one_line_with_a_remedy():
    own = "outside. Put the file there."
    rejects = (
        Reject("", "", "a\nb.csv:2", Reason.TIMEOUT, "takes\nlong"),
        Reject("", "", "t.csv:2", Reason.OUTSIDE_ROOT, own),
    )
    assert reject_lines(reject.to_dict() for reject in rejects) == [
        "  a\\nb.csv:2: timeout: takes\\nlong. Raise --image_timeout.",
        f"  t.csv:2: outside_root: {own}",
    ]


def test_an_error_can_be_pickled():
    error = pickle.loads(pickle.dumps(RecordError(Reason.CORRUPT, "got x")))  # noqa: S301
    assert type(error) is RecordError
    assert (error.reason, error.detail, str(error)) == (Reason.CORRUPT, "got x", "corrupt: got x")


def test_the_written_fields_of_a_reject():
    reject = Reject('k"1', "/d/ü.jpg", "t.csv:7", Reason.WRONG_TYPE, "x\ny", split="train")
    assert reject.to_json() == (
        '{"key": "k\\"1", "uri": "/d/ü.jpg", "source": "t.csv:7", '
        '"reason": "wrong_type", "detail": "x\\ny"}'
    )


@given(st.text(), st.text(), st.text(), st.sampled_from(Reason), st.text())
def test_a_reject_survives_a_round_trip_through_one_line(key, uri, source, reason, detail):
    line = Reject(key, uri, source, reason, detail).to_json()
    assert "\n" not in line
    expected = {"key": key, "uri": uri, "source": source, "reason": reason.value, "detail": detail}
    assert json.loads(line) == expected


def test_a_reject_of_a_table_whose_name_is_not_utf8_can_be_written():
    # Python shows such names with lone surrogates, and a pattern finds them.
    line = Reject("", "", "t\udcff.csv:1", Reason.MALFORMED_ROW, "cut").to_json()
    assert json.loads(line.encode("utf-8"))["source"]
