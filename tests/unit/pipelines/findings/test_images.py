"""Notes on similar images and on images of low quality."""

from __future__ import annotations

from recordmill.pipelines.findings import (
    Outcome,
    _identical_images,
    _image_quality,
    _similar_images,
)
from recordmill.schemas.findings import lines
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.statistics import (
    Conflicts,
    DuplicateStats,
    ImageQuality,
    Leakage,
    NearDuplicates,
    QualityIssue,
    RecordExample,
)


def of(**statistics):
    """Returns the outcome of a run with some statistics."""
    return Outcome(Manifest.model_construct(config={}, **statistics))


def test_similar_images_are_noted():
    examples = (("a", "b"), ("c", "d"), ("e", "f"))
    leak = Leakage(splits=("test", "train"), images=3, records=7, examples=examples)
    near = NearDuplicates(
        groups=3,
        duplicates={"train": 4},
        leaks=(leak,) * 11,
        conflicts=Conflicts(images=1, records=2, examples=(("a", "b"),)),
        full_buckets=2,
    )
    found = list(lines(_similar_images(of(near_duplicates=near))))
    assert found[0] == (
        "warning: test and train share 3 groups of similar images (a ~ b, c ~ d, …)"
    )
    assert found[10:] == [
        "warning: 1 more pair of splits share similar images",
        "warning: 1 group of similar images has more than one label (a ~ b)",
        "note: 4 records of train repeat in similar form the image of another record of train",
        "note: 2 sets of images with equal low frequencies are too large to compare all pairs; "
        "some similar images may be missing",
    ]


def test_findings_on_similar_images_name_what_can_be_done():
    near = NearDuplicates(
        groups=1,
        duplicates={"train": 1},
        leaks=(Leakage(splits=("test", "train"), images=1, records=2),),
    )

    def hints(mode):
        manifest = Manifest.model_construct(config={"near_duplicates": mode}, near_duplicates=near)
        return [found.hint for found in _similar_images(Outcome(manifest))]

    together = "--near_duplicates keep_together keeps them in one split, and drop keeps one of them"
    assert hints("report") == [together] * 2
    assert hints("drop") == [""] * 2
    own = (
        "a row's own split, and that of its key in --base, override --near_duplicates keep_together"
    )
    drop = "--near_duplicates drop keeps one of them"
    assert [hint.partition(";")[0] for hint in hints("keep_together")] == [own, drop]


def test_an_overflow_is_noted():
    (line,) = lines(_similar_images(of(near_duplicates=NearDuplicates(overflow=True))))
    assert line == "note: too many images are similar to be grouped; none of them is listed"


def test_low_quality_is_noted():
    examples = tuple(
        (0.1, RecordExample(key=key, split="train", shard=0, index=0)) for key in ("a", "b", "c")
    )
    issues = {
        "dark": QualityIssue(images={"train": 1, "test": 2}, examples=examples),
        "tiny": QualityIssue(images={"train": 1}, examples=examples[:1]),
    }
    assert list(lines(_image_quality(of(quality=ImageQuality(measured=9, issues=issues))))) == [
        "note: 3 images are dark (a, b, …)",
        "note: 1 image is tiny (a)",
    ]


def test_a_dataset_without_measures_has_no_notes():
    outcome = of()
    assert [*_similar_images(outcome), *_image_quality(outcome)] == []


def test_of_many_pairs_of_leaking_splits_some_are_listed_and_the_others_counted() -> None:
    leak = Leakage(splits=("a", "b"), images=1, records=2)
    found = list(lines(_identical_images(of(content=DuplicateStats(leaks=(leak,) * 44_850)))))
    assert len(found) == 12
    assert found[10] == "warning: 44,840 more pairs of splits share images"
