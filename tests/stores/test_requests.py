"""The requests of a conversion: a fixed number per shard, and a fixed number for the rest.

The same table is converted to 25 and to 50 shards.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.end_to_end.command import recordmill
from tests.stores.kinds import Store

ROWS = 500
OUTPUT = "birds/1.0.0"
RUN = "birds/.1.0.0.run"


def requests(store: Store, table: Path, shards: int) -> Counter[str]:
    """Converts a table, and returns the requests by method and name, with shards as `N`."""
    output = f"requests{shards}"
    store.proxy.set()
    flags = ("--schema=tabular", "--key_column=id", f"--num_shards={shards}", "--no_report")
    target = (f"--output={store.root}/{output}", "--name=birds", *flags, *store.flags)
    ended = recordmill("convert", f"--input={table}", *target)
    assert ended.code == 0, ended.err
    found = Counter[str]()
    for name, count in store.proxy.counts().items():
        shard = re.sub(r"\d{5}-of-000\d\d\b", "N", name)
        found[shard.replace(f"{store.url_path}{output}/", "")] += count
    return found


def test_requests_are_a_fixed_number_per_shard_and_for_the_rest(
    s3_store: Store, tmp_path: Path
) -> None:
    table = tmp_path / "table.csv"
    table.write_text("id,x\n" + "".join(f"{i},{i * 0.5}\n" for i in range(ROWS)))
    few, many = (requests(s3_store, table, shards) for shards in (25, 50))
    assert many - few == dict.fromkeys(  # of 25 shards more
        [
            f"GET {RUN}/checkpoints/birds-train.tfrecord-N.json",  # whether one is finished
            f"PUT {OUTPUT}/birds-train.tfrecord-N",
            f"PUT {OUTPUT}/records/records-train-N.parquet",
            f"PUT {RUN}/checkpoints/birds-train.tfrecord-N.json",
            f"HEAD {OUTPUT}/birds-train.tfrecord-N",  # verification
            f"GET {OUTPUT}/birds-train.tfrecord-N",
            f"GET {OUTPUT}/records/records-train-N.parquet",
        ],
        25,
    )
    assert not few - many
    of_all = {name: count for name, count in few.items() if count < 25}
    written = {name: count for name, count in of_all.items() if name.startswith("PUT")}
    sidecars = ("features.json", "schema.pbtxt", "croissant.json", "README.md", "manifest.json")
    sidecars += ("dataset_info.json", "_SUCCESS")
    assert written == {
        f"PUT {OUTPUT}/run.json": 2,  # when it begins, and when it ends
        f"PUT {OUTPUT}/rejects/rejects-N.jsonl": 1,
        **{f"PUT {OUTPUT}/{name}": 1 for name in sidecars},
    }
    assert sum(of_all.values()) < 60
    deleted = [name for name in of_all if name.startswith(("DELETE", "POST"))]
    assert deleted == ["POST /birds"]  # all checkpoints, in one request
    assert of_all["POST /birds"] == 1
