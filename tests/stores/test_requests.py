"""The requests of a conversion: a fixed number per shard, a fixed number for the rest, in order.

The same table is converted to 25 and to 50 shards, in a store that takes 20 ms per request.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.end_to_end.command import recordmill
from tests.stores.kinds import Store

ROWS = 500
LATENCY_MS = 20
OUTPUT = "birds/1.0.0"
RUN = "birds/.1.0.0.run"
SHARD = "birds-train.tfrecord-N"
WRITTEN_PER_SHARD = (
    f"PUT {OUTPUT}/{SHARD}",
    f"PUT {OUTPUT}/records/records-train-N.parquet",
    f"PUT {RUN}/checkpoints/{SHARD}.json",
)
READ_PER_SHARD = (
    f"GET {RUN}/checkpoints/{SHARD}.json",  # whether one is finished
    f"HEAD {OUTPUT}/{SHARD}",  # verification
    f"GET {OUTPUT}/{SHARD}",
    f"GET {OUTPUT}/records/records-train-N.parquet",
)
# dataset_info.json is the first file by which another tool takes the folder for a dataset.
SIDECARS = ("manifest.json", "schema.pbtxt", "features.json", "croissant.json", "README.md")
READS = ("GET ", "HEAD ")
FINISH = (
    f"PUT {OUTPUT}/rejects/rejects-N.jsonl",
    *(f"PUT {OUTPUT}/{name}" for name in (*SIDECARS, "run.json", "dataset_info.json", "_SUCCESS")),
    "POST /birds",  # deletes all checkpoints, in one request
)


def requests(store: Store, table: Path, shards: int) -> list[str]:
    """Converts a table, and returns the requests by method and name in order, with shards as `N`.

    Args:
        store: an S3 server.
        table: the table.
        shards: the number of shards.
    """
    output = f"requests{shards}"
    store.proxy.set(latency_ms=LATENCY_MS)
    flags = ("--schema=tabular", "--key_column=id", f"--num_shards={shards}", "--no_report")
    target = (f"--output={store.root}/{output}", "--name=birds", *flags, *store.flags)
    ended = recordmill("convert", f"--input={table}", *target)
    assert ended.code == 0, ended.err
    return [
        re.sub(r"\d{5}-of-\d{5}\b", "N", name).replace(f"{store.url_path}{output}/", "")
        for name in store.proxy.requests()
    ]


def test_requests_are_a_fixed_number_per_shard_and_for_the_rest(
    s3_store: Store, tmp_path: Path
) -> None:
    table = tmp_path / "table.csv"
    table.write_text("id,x\n" + "".join(f"{i},{i * 0.5}\n" for i in range(ROWS)))
    in_order = {shards: requests(s3_store, table, shards) for shards in (25, 50)}
    few, many = map(Counter, in_order.values())
    assert many - few == dict.fromkeys((*READ_PER_SHARD, *WRITTEN_PER_SHARD), 25)
    assert not few - many
    of_all = {name: count for name, count in few.items() if count < 25}
    written = {name: count for name, count in of_all.items() if not name.startswith(READS)}
    assert written == {**dict.fromkeys(FINISH, 1), f"PUT {OUTPUT}/run.json": 2}  # the first begins
    assert sum(of_all.values()) < 75  # sidecars are read back
    for shards, names in in_order.items():
        writes = [name for name in names if not name.startswith(READS)]
        shards_end = 1 + 3 * shards
        assert writes[0] == f"PUT {OUTPUT}/run.json"
        assert Counter(writes[1:shards_end]) == dict.fromkeys(WRITTEN_PER_SHARD, shards)
        assert tuple(writes[shards_end:]) == FINISH
