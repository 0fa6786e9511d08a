"""Audits shards here or in the process apart, and what that process does."""

from __future__ import annotations

import gc
import os
import threading
from multiprocessing.connection import Connection

from schemas.config import Verify
from schemas.dataset_info import ShardAudit
from schemas.plan import ResolvedSchema
from transforms.audit import audit_shard
from transforms.auditor import begun
from transforms.shard_file import ShardFiles
from transforms.tensorflow_reader import tensorflow, tensorflow_in_threads


def prepare() -> None:
    """Imports TensorFlow, unless another process has done so for this one."""
    if not begun():
        tensorflow()


def audit(shard: ShardFiles, resolved: ResolvedSchema, verify: Verify) -> ShardAudit:
    """Returns what `audit_shard` does, here or apart; the arguments and what is raised are its own.

    Raises:
        RunError: if the process apart has died.
    """
    auditor = begun()
    return (auditor.audit if auditor else audit_shard)(shard, resolved, verify)


def serve(descriptors: list[int]) -> None:
    """Audits what comes through connections, until they are closed at the other end."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.disable()  # what is imported stays: to look through it, again and again, takes time
    tensorflow_in_threads()
    gc.freeze()
    gc.enable()
    threads = [threading.Thread(target=_answer, args=(Connection(fd),)) for fd in descriptors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)  # nothing here to be put in order


def _end_with_parent() -> None:
    """Ends this process with the one that holds the other end of its standard input."""
    os.read(0, 1)
    os._exit(0)


def _answer(connection: Connection) -> None:
    while True:
        try:
            asked = connection.recv()
        except (EOFError, OSError):  # the other end is closed, or was while it had more to say
            return
        try:
            answer: ShardAudit | Exception = audit_shard(*asked)
        except OSError as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked; may not pickle
            answer = RuntimeError(f"{type(error).__name__}: {error}")
        try:
            connection.send(answer)
        except OSError:
            return
