"""The number of cores of a process: its affinity, limited by the quota of its container."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from recordmill.transforms.workers import process as cores


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        pytest.param({}, math.inf, id="no cgroups"),
        pytest.param(
            {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "200000 100000"},
            2,
            id="a container, version 2",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"},
            math.inf,
            id="no limit, version 2",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/a.slice/b.scope\n",
                "sys/fs/cgroup/a.slice/b.scope/cpu.max": "max 100000",
                "sys/fs/cgroup/a.slice/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/cgroup.controllers": "cpu",
            },
            1.5,
            id="the limit of a cgroup above",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/docker/1f\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            0.5,
            id="a container, version 1, whose path is the host's",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "3:cpu:/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            math.inf,
            id="no limit, version 1",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "odd"}, math.inf, id="unknown"
        ),
        pytest.param({"proc/self/cgroup": "odd\n::"}, math.inf, id="no lines of cgroups"),
    ],
)
def test_the_quota_of_a_cgroup(files: dict[str, str], quota: float, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cores._cgroup_quota(tmp_path) == quota


@pytest.mark.parametrize(
    ("quota", "expected"), [(math.inf, 8), (64, 8), (2, 2), (1.5, 2), (0.1, 1)]
)
def test_the_quota_limits_the_cores_of_the_affinity(
    quota: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.setattr(cores, "_cgroup_quota", lambda: quota)
    assert cores.num_cores() == expected
