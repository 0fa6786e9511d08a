"""Tests of the order of frames, and of rejected sequences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.features import Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import BuiltFrame, FrameLocation, ImageRef, SerializedExample
from recordmill.schemas.rejects import Reason, Reject
from recordmill.transforms.functional.records.examples import decode_sequence
from recordmill.transforms.functional.rows import placement
from recordmill.transforms.functional.rows.placement import (
    _sort_frames,
    _sort_keys,
    _spans_splits_reject,
    arrange_shard,
    assemble_sequences,
)

SCHEMA = Schema.model_validate(
    {
        "sequence": {"group": "clip", "order": "at"},
        "features": {
            "label": {"kind": "int64", "from": "column:label", "classes": True},
            "fps": {"kind": "float", "from": "column:fps"},
            "text": {"kind": "bytes", "from": "column:text", "per": "frame"},
        },
    }
)
RESOLVED = ResolvedSchema(SCHEMA, {"label": ("cat", "dog")})


def frame(
    line: int, order: str = "", clip: str = "a", label: int = 0, fps: float = 25.0, fault: str = ""
) -> ImageRef:
    """Returns the frame of a row, with a unique key."""
    return ImageRef(
        key=f"{clip}/{line}",
        file="t.csv",
        line=line,
        uri=f"/images/{line}",
        start=None,
        stop=None,
        values=() if fault else (label, fps, b"row %d" % line),
        frame=FrameLocation(clip, order, fault, "message" if fault else ""),
    )


def orders(frames):
    return [ref.frame[1] for ref in frames]


def reasons(rejects: list[Reject]) -> list[tuple[str, Reason]]:
    return [(reject.source, reject.reason) for reject in rejects]


def place(*frames: ImageRef) -> list[tuple[bytes, ImageRef]]:
    """Returns (order hash, frame) of rows, with hashes in the order of the sequence names."""
    return [(ref.record_key.encode(), ref) for ref in frames]


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (["10", "9", "1"], ["1", "9", "10"]),
        (["1.5", "-2", "+0", "1e1", ".5"], ["-2", "+0", ".5", "1.5", "1e1"]),
        (["9007199254740993", "9007199254740992"], ["9007199254740992", "9007199254740993"]),
        (["f10.png", "f9.png", "f100.png"], ["f9.png", "f10.png", "f100.png"]),
        (["10", "9", "x"], ["9", "10", "x"]),
        (["a2b10", "a2b9", "a10b1"], ["a2b9", "a2b10", "a10b1"]),
        (["b", "B", "ä"], ["B", "b", "ä"]),
        (["f01", "f1"], ["f01", "f1"]),
        (["t" + "9" * 5000, "t" + "8" * 5000], ["t" + "8" * 5000, "t" + "9" * 5000]),
        (
            ["00:00:09.5", "00:00:10.25", "00:00:09.75"],
            ["00:00:09.5", "00:00:09.75", "00:00:10.25"],
        ),
        (["2024-01-02", "2023-12-31"], ["2023-12-31", "2024-01-02"]),
    ],
)
def test_frames_are_in_the_order_of_numbers_or_else_of_texts(given_, expected):
    frames = [frame(line, order) for line, order in enumerate(given_, start=2)]
    assert orders(_sort_frames(frames)) == expected
    assert orders(_sort_frames(reversed(frames))) == expected


@given(st.lists(st.one_of(st.text(max_size=6), st.integers().map(str)), min_size=1, max_size=6))
def test_the_order_of_frames_does_not_depend_on_the_order_of_rows(values):
    frames = [frame(line, order) for line, order in enumerate(values)]
    assert _sort_frames(frames) == _sort_frames(reversed(frames))
    assert len(_sort_keys(values)) == len(values)


@pytest.mark.parametrize(
    ("label", "fps", "difference"),
    [
        (1, 25.0, ", whose 'label' is 'cat' in place of 'dog'"),
        (1, 2.0, ", whose 'label' is 'cat' in place of 'dog'"),
        (0, 2.0, ", whose 'fps' is 25.0 in place of 2.0"),
        (0, 25.0, ""),
    ],
)
def test_rows_of_one_key_without_an_order_show_how_they_differ(label, fps, difference):
    rows = [frame(-9)._replace(frame=None), frame(-8, label=label, fps=fps)._replace(frame=None)]
    rows = [row._replace(key="a", file="row a", values=row.values[:2]) for row in rows]
    features = dict([*SCHEMA.features.items()][:2])
    resolved = ResolvedSchema(Schema(features=features), RESOLVED.classes)
    for given_ in (rows, rows[::-1]):
        kept, (reject,) = arrange_shard([(b"", row) for row in given_], resolved)
        assert list(kept) == rows[:1]
        assert reject.detail == f"another row has the same key; one of them is kept{difference}"


def test_complete_sequences_follow_each_other():
    rows = [frame(5, "2", "b"), frame(2, "10", "a"), frame(4, "1", "b"), frame(3, "9", "a")]
    kept, rejected = arrange_shard(place(*rows), RESOLVED)
    assert [ref.line for ref in kept] == [3, 2, 4, 5]
    assert rejected == []


def test_sequences_of_one_hash_are_not_mixed():
    rows = [frame(2, "1", "a"), frame(3, "1", "b"), frame(4, "2", "a"), frame(5, "2", "b")]
    kept, rejected = arrange_shard([(b"same", ref) for ref in rows], RESOLVED)
    assert [ref.line for ref in kept] == [2, 4, 3, 5]
    assert rejected == []


def test_two_frames_with_one_order_break_only_their_sequence():
    rows = [frame(2, "1"), frame(3, "2"), frame(4, "1.0"), frame(5, "1", "b")]
    kept, rejected = arrange_shard(place(*rows), RESOLVED)
    assert [ref.line for ref in kept] == [5]
    assert reasons(rejected) == [
        ("t.csv:2", Reason.DUPLICATE_ORDER),
        ("t.csv:4", Reason.DUPLICATE_ORDER),
        ("t.csv:3", Reason.SEQUENCE_BROKEN),
    ]
    assert [reject.detail for reject in rejected] == [
        "sequence 'a': order '1' is the same as in t.csv:4; expected a different one "
        "for each frame",
        "sequence 'a': order '1.0' is the same as in t.csv:2; expected a different one "
        "for each frame",
        "sequence 'a': its frame 'a/2' is rejected: duplicate_order",
    ]


def test_a_row_that_cannot_be_bound_breaks_its_sequence():
    rows = [frame(2, "1"), frame(3, "", fault="wrong_type"), frame(4, "3", label=1)]
    kept, rejected = arrange_shard(place(*rows), RESOLVED)
    assert kept == []
    assert sorted(reasons(rejected)) == [
        ("t.csv:2", Reason.SEQUENCE_BROKEN),
        ("t.csv:3", Reason.WRONG_TYPE),
        ("t.csv:4", Reason.SEQUENCE_BROKEN),
    ]
    assert {r.detail for r in rejected if r.reason is Reason.WRONG_TYPE} == {
        "sequence 'a': message"
    }


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"label": 1}, "'label' is 'cat' in t.csv:2, and 'dog' in t.csv:4"),
        ({"fps": 24.0}, "'fps' is 25.0 in t.csv:2, and 24.0 in t.csv:4"),
    ],
)
def test_a_differing_context_rejects_every_row(other, message):
    rows = [frame(3, "1"), frame(4, "2", **other), frame(2, "3")]
    kept, rejected = arrange_shard(place(*rows), RESOLVED)
    assert kept == []
    assert {reject.reason for reject in rejected} == {Reason.CONTEXT_DIFFERS}
    assert [reject.source for reject in rejected] == ["t.csv:3", "t.csv:4", "t.csv:2"]
    assert {r.detail for r in rejected} == {
        f"sequence 'a': {message}; expected one value per sequence"
    }


def test_a_context_that_is_nan_in_all_rows_does_not_differ():
    rows = [frame(line, str(line), fps=float("nan")) for line in (2, 3)]
    kept, rejected = arrange_shard(place(*rows), RESOLVED)
    assert (len(kept), rejected) == (2, [])


def test_a_sequence_in_two_splits_is_rejected_and_bad_rows_keep_their_reason():
    why = "'split' is 'test' in one row, and 'split' is 'train' in another"
    intact, bad = (
        _spans_splits_reject(frame(2, "1"), why),
        _spans_splits_reject(frame(3, "", fault="missing_value"), why),
    )
    assert (intact.reason, bad.reason) == (Reason.CONTEXT_DIFFERS, Reason.MISSING_VALUE)
    assert intact.detail == f"sequence 'a': {why}; expected one split per sequence"


def built(ref: ImageRef) -> BuiltFrame:
    return BuiltFrame(ref, ref.values)


def broken(ref: ImageRef) -> Reject:
    return Reject(ref.key, ref.uri, ref.source, Reason.TRUNCATED, "cut short")


def test_a_broken_image_rejects_only_its_sequence():
    refs = [frame(2, "1"), frame(3, "2"), frame(4, "3"), frame(5, "1", "b"), frame(6, "2", "b")]
    outcomes = [built(refs[0]), broken(refs[1]), *map(built, refs[2:])]
    *rejected, record = assemble_sequences(outcomes, refs, SCHEMA)
    assert reasons(rejected) == [
        ("t.csv:2", Reason.SEQUENCE_BROKEN),
        ("t.csv:3", Reason.TRUNCATED),
        ("t.csv:4", Reason.SEQUENCE_BROKEN),
    ]
    what = "sequence 'a': its frame 'a/3' is rejected: truncated"
    assert [reject.detail for reject in rejected] == [what, "cut short", what]
    assert isinstance(record, SerializedExample)
    assert (record.ref.key, record.rows) == ("b", 2)
    assert decode_sequence(record.data, SCHEMA)["text"] == [b"row 5", b"row 6"]


def test_a_sequence_too_large_for_a_message_is_rejected(monkeypatch):
    refs = [frame(2, "1"), frame(3, "2"), frame(4, "3")]
    size = built(refs[0]).size
    monkeypatch.setattr(placement, "MAX_BYTES", 2 * size)
    rejected = list(assemble_sequences(map(built, refs), refs, SCHEMA))
    assert {reject.reason for reject in rejected} == {Reason.SEQUENCE_BROKEN}
    assert len(rejected) == 3
    assert rejected[0].detail.startswith(f"sequence 'a': the sequence has {3 * size} bytes in 3")
    assert [
        record.rows for record in assemble_sequences(map(built, refs[:2]), refs[:2], SCHEMA)
    ] == [2]


def test_sequences_are_assembled_one_at_a_time():
    refs = [frame(2, "1"), frame(3, "1", "b"), frame(4, "1", "c")]
    asked = []

    def build():
        for ref in refs:
            asked.append(ref.line)
            yield built(ref)

    records = assemble_sequences(build(), refs, SCHEMA)
    assert next(records).ref.key == "a"
    assert asked == [2, 3]  # the first frame of the next shows that the sequence has ended
