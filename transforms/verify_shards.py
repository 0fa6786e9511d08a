"""Verifies shards by re-reading their final files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from schemas import layout
from schemas.config import ConvertConfig
from schemas.dataset_info import ShardAudit, ShardInfo
from schemas.plan import Plan
from transforms.audit import ShardFiles, audit_shard, tensorflow


@dataclass(eq=False)
class VerifyShards(beam.PTransform):
    """Re-reads every shard with TensorFlow: PCollection[ShardInfo] → PCollection[ShardAudit].

    Attributes:
        config: names, compression, and how closely to look.
        directory: the dataset's folder.
        plan: the schema that every record has to fit.
    """

    config: ConvertConfig
    directory: str
    plan: PCollection[Plan]

    def expand(self, shards: PCollection[ShardInfo]) -> PCollection[ShardAudit]:
        """Adds the verification; one shard is one unit of work."""
        return (
            shards
            | "SpreadShards" >> beam.Reshuffle()
            | "Audit" >> beam.ParDo(_Audit(self.config, self.directory), AsSingleton(self.plan))
        )


class _Audit(beam.DoFn):
    def __init__(self, config: ConvertConfig, directory: str) -> None:
        self._config = config
        self._directory = directory

    def setup(self) -> None:
        tensorflow()

    def process(self, info: ShardInfo, plan: Plan) -> Iterator[ShardAudit]:
        config, split, index = self._config, info.split, info.index
        count = plan.shards[split]
        files = ShardFiles(
            directory=self._directory,
            split=split,
            index=index,
            file=layout.shard_name(config.name, split, index, count, config.compression),
            records=layout.records_name(split, index, count),
        )
        yield audit_shard(files, plan.resolved, config.verify)
