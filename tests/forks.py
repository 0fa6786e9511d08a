"""Processes that are forked from one that has imported Beam, instead of importing it again."""

from __future__ import annotations

import multiprocessing

forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(["recordmill.pipelines.run.lock"])
