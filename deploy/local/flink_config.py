"""Writes the configuration of a small Flink cluster on loopback, based on Flink's default file.

Used by engine.sh: flink_config.py DEFAULT OUTPUT port=N slots=N memory=SIZE retries=N tmp=DIR
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import yaml


def settings(given: Mapping[str, str]) -> dict[str, object]:
    """Returns the settings that differ from Flink's default file."""
    port, slots, retries = (int(given[name]) for name in ("port", "slots", "retries"))
    return {
        "restart-strategy.type": "fixed-delay" if retries else "none",
        "restart-strategy.fixed-delay.attempts": retries,
        # Longer than --environment_cache_millis keeps a dead Python worker.
        "restart-strategy.fixed-delay.delay": "10 s",
        "jobmanager.rpc.port": port + 1,
        "jobmanager.memory.process.size": "1g",
        "rest.port": port,
        "rest.bind-address": "127.0.0.1",
        "blob.server.port": port + 2,
        "io.tmp.dirs": given["tmp"],
        "taskmanager.numberOfTaskSlots": slots,
        "taskmanager.memory.process.size": given["memory"],
        # With Flink's defaults, a task manager of 1 GB has too little heap or too few buffers: a
        # batch job of Beam has a dozen shuffles, each with 512 buffers of 32 kB by default.
        "taskmanager.memory.jvm-metaspace.size": "192m",
        "taskmanager.memory.jvm-overhead.min": "64m",
        "taskmanager.memory.jvm-overhead.max": "64m",
        "taskmanager.memory.framework.heap.size": "64m",
        "taskmanager.memory.managed.size": "96m",
        # For what is sent to Python workers: gRPC holds what they have not read yet.
        "taskmanager.memory.task.off-heap.size": "160m",
        "taskmanager.memory.network.min": "96m",
        "taskmanager.memory.network.max": "96m",
        "taskmanager.network.sort-shuffle.min-buffers": 32,
        "classloader.resolve-order": "parent-first",  # libraries that engine.sh adds to lib/
        # Detects lost task managers within 10 s instead of 50 s.
        "heartbeat.interval": 1000,
        "heartbeat.timeout": 10000,
    }


def flat(nested: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Flattens nested settings to dotted names, because Flink accepts no mixture of the two.

    Args:
        nested: settings as parsed from YAML.
        prefix: of the dotted names.
    """
    found: dict[str, object] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[3:])
    ours = settings(given)
    merged = flat(yaml.safe_load(Path(sys.argv[1]).read_text(encoding="utf-8"))) | ours
    Path(sys.argv[2]).write_text(yaml.safe_dump(merged, width=10_000), encoding="utf-8")
