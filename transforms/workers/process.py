"""What a process may use, and what it prints: cores, garbage collection and standard error."""

from __future__ import annotations

import gc
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath

# The number of cores that this process is limited to; infinity for all.
_limit = math.inf


def limit_cores(cores: int) -> None:
    """Limits this process, of several that share the cores of a machine, to a number of them."""
    global _limit
    _limit = cores


def num_cores() -> int:
    """Returns the number of cores this process may use: the smaller of affinity and CPU quota."""
    has_affinity = hasattr(os, "sched_getaffinity")
    available = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, math.ceil(min(available, _cgroup_quota(), _limit)))


@cache
def _cgroup_quota(root: Path = Path("/")) -> float:
    """Returns the CPU quota of this process's cgroup in cores; infinity without a limit.

    `docker --cpus` and Kubernetes' `limits.cpu` set a quota, but the container sees all cores. See
    https://docs.kernel.org/admin-guide/cgroup-v2.html and
    https://docs.kernel.org/scheduler/sched-bwc.html (version 1).
    """
    return min((_quota_of(folder) for folder in _cgroups(root)), default=math.inf)


def _cgroups(root: Path) -> Iterator[Path]:
    """Yields the folders of this process's cgroup and its ancestors, in versions 1 and 2."""
    mounted = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        # "0::/path" in version 2, "4:cpu,cpuacct:/path" in version 1.
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        hierarchies = ("cpu", "cpu,cpuacct") if controllers else ("", "unified")
        # In a container the path can be that of the host, while only the root is mounted.
        relative = PurePosixPath(path.lstrip("/"))
        for hierarchy in hierarchies:
            yield from (mounted / hierarchy / part for part in (relative, *relative.parents))


def _quota_of(cgroup: Path) -> float:
    """Returns the CPU quota of one cgroup in cores; infinity without a limit."""
    with suppress(ValueError, LookupError, ZeroDivisionError):  # an unknown format
        if limit := _read(cgroup / "cpu.max").split():
            return math.inf if limit[0] == "max" else int(limit[0]) / int(limit[1])
        quota = int(_read(cgroup / "cpu.cfs_quota_us") or -1)
        period = int(_read(cgroup / "cpu.cfs_period_us") or 1)
        return quota / period if quota > 0 else math.inf
    return math.inf


def _read(path: Path) -> str:
    with suppress(OSError, UnicodeError):  # not Linux, or not readable for this user
        return path.read_text(encoding="utf-8")
    return ""


_COLLECTED_OBJECTS = 10_000


def collect_garbage() -> None:
    """Enables garbage collection, except for the objects that exist already."""
    gc.freeze()
    # Rows are many small objects without cycles. By default, every 700 new objects are scanned, and
    # the older ones every 70,000: a tenth of the CPU time of a table.
    gc.set_threshold(_COLLECTED_OBJECTS)
    gc.enable()


# Marks the end of a body's output: child processes may keep the pipe open after it.
_END = b"\0\n"


@contextmanager
def rewritten_standard_error(rewrite: Callable[[bytes], bytes]) -> Iterator[None]:
    """Passes each line on standard error through a function while the body runs.

    Native libraries and child processes write to file descriptor 2. It is replaced by a pipe, whose
    reader writes the lines to the former descriptor, also those of child processes that outlive the
    body. The last line may lack its line end.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    source, sink = os.pipe()
    is_copied = threading.Event()
    copying = (source, kept, rewrite, is_copied)
    threading.Thread(target=_copy, args=copying, daemon=True).start()
    os.dup2(sink, 2)
    os.close(sink)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.write(2, _END)
        os.dup2(kept, 2)
        is_copied.wait()


def _copy(
    source: int, target: int, rewrite: Callable[[bytes], bytes], is_copied: threading.Event
) -> None:
    """Copies lines from one file descriptor to another, and closes both."""
    with open(source, "rb") as lines, open(target, "wb", buffering=0) as kept:
        for line in lines:
            with suppress(OSError):  # keeps reading: a full pipe would block its writers
                kept.write(rewrite(line.removesuffix(_END)))
            if line.endswith(_END):
                is_copied.set()
