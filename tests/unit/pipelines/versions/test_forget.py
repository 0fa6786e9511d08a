"""The result of a removal."""

from __future__ import annotations

from recordmill.pipelines.commands.forget import _similar_lines
from recordmill.pipelines.forget import Forgotten, Holder, SimilarRecord, purge
from recordmill.pipelines.versions import Version
from recordmill.schemas.manifest import Manifest


def holder(links: tuple[tuple[str, int, int], ...]) -> Holder:
    version = Version("/out/birds/1.0.0", Manifest.model_construct(version="1.0.0"), 0, 0)
    return Holder(version, 1, links)


def test_a_result_names_its_certificate_and_the_links_that_remain() -> None:
    links = (("/out/birds/1.0.0/x", 5, 1), ("/out/birds/1.0.0/y", 6, 2))
    done = Forgotten(
        "/out/birds/1.0.1", "/out/birds/1.0.0", 1, 3, (), (holder(links[:1]), holder(links[1:]))
    )
    assert (done.certificate, done.folder) == ("/out/birds/1.0.1/removal.json", "/out/birds")
    assert done.links == list(links)
    (problem,) = purge(done).problems
    assert str(problem) == "2 deleted shards, with removed records, linked elsewhere"
    none = Forgotten("1.0.0", "1.0.0", 0, 0, (), ())
    assert (none.certificate, none.folder, none.links) == (None, ".", [])
    purge(none)  # deletes nothing


def test_a_record_with_several_of_the_images_is_one_line() -> None:
    found = [SimilarRecord("a", "train", 0, True, digest) for digest in ("1", "2")]
    found += [SimilarRecord(str(n), "test", 3, False, "3") for n in range(6)]
    assert _similar_lines(found) == [
        "a (train) remains with the same image",
        *[f"{n} (test) remains with a similar image (3 of 256 bits)" for n in range(4)],
        "and 2 more; --json lists all",
    ]
