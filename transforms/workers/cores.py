"""How many cores there are to work with."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath


def num_cores() -> int:
    """Returns how many cores this process may use: of its affinity, and of its cgroup's quota."""
    has_affinity = hasattr(os, "sched_getaffinity")
    available = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, math.ceil(min(available, cgroup_quota())))


@cache
def cgroup_quota(root: Path = Path("/")) -> float:
    """Returns how many cores' time the cgroup of this process has; infinity if there is no limit.

    Containers are given one by `docker --cpus` and Kubernetes' `limits.cpu`, and see all cores.
    Source: https://docs.kernel.org/admin-guide/cgroup-v2.html and cgroup-v1/cpusets.

    Args:
        root: of the file system, for tests.
    """
    return min((_quota_of(folder) for folder in _cgroups(root)), default=math.inf)


def _cgroups(root: Path) -> Iterator[Path]:
    """Yields the folders of this process's cgroup and of all above it, in versions 1 and 2."""
    mounted = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        hierarchies = ("cpu", "cpu,cpuacct") if controllers else ("", "unified")
        # Within a container the path can be the host's, of which only the top is there.
        relative = PurePosixPath(path.lstrip("/"))
        for hierarchy in hierarchies:
            yield from (mounted / hierarchy / part for part in (relative, *relative.parents))


def _quota_of(cgroup: Path) -> float:
    """Returns how many cores' time one cgroup has."""
    try:
        if limit := _read(cgroup / "cpu.max").split():
            return math.inf if limit[0] == "max" else int(limit[0]) / int(limit[1])
        quota = int(_read(cgroup / "cpu.cfs_quota_us") or -1)
        period = int(_read(cgroup / "cpu.cfs_period_us") or 1)
        return quota / period if quota > 0 else math.inf
    except (ValueError, LookupError, ZeroDivisionError):  # of a kernel that writes it otherwise
        return math.inf


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError):  # not Linux, or not for everybody
        return ""
