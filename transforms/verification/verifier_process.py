"""Verifies shards and decodes images, in this process or in the verifier process."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from recordmill.schemas.config import Verify
from recordmill.schemas.dataset_info import ShardVerification
from recordmill.schemas.features import ImageAttribute, Schema
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import StoredImage
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.storage.shard_files import ShardFiles
from recordmill.transforms.verification.tensorflow_reader import (
    BadImageError,
    check_image,
    tensorflow,
    tensorflow_in_threads,
)
from recordmill.transforms.verification.verifier import begun
from recordmill.transforms.verification.verify_shard import first_line, verify_shard


def prepare() -> None:
    """Imports TensorFlow, unless another process has done so for this one."""
    if not begun():
        tensorflow()


def audit(shard: ShardFiles, resolved: ResolvedSchema, verify: Verify) -> ShardVerification:
    """Returns what `verify_shard` does, here or in the verifier process.

    Raises:
        RunError: if the separate process has died.
    """
    auditor = begun()
    return (auditor.audit if auditor else verify_shard)(shard, resolved, verify)


def check_decodes(image: StoredImage, mask: bytes | None, schema: Schema) -> None:
    """Has TensorFlow decode an image, and its mask, before they are written.

    Args:
        image: as the record is to hold it.
        mask: also, if it has one.
        schema: says how masks are stored, and whether images are encoded at all.

    Raises:
        RecordError: corrupt, if TensorFlow does not decode it, or not to the size and channels that
            the record states.
        RunError: if the separate process has died.
    """
    if schema.encoded_image is None:
        return
    stated = {
        ImageAttribute.HEIGHT: image.height,
        ImageAttribute.WIDTH: image.width,
        ImageAttribute.CHANNELS: image.channels,
    }
    auditor = begun()
    find = auditor.decode_fault if auditor else decode_fault
    if fault := find(image.data, stated, mask, schema.masks.bit_depth):
        raise RecordError(Reason.CORRUPT, f"TensorFlow cannot decode it: {fault}")


def decode_fault(
    image: bytes, stated: dict[ImageAttribute, int], mask: bytes | None, bit_depth: int
) -> str | None:
    """Returns why TensorFlow does not decode an image to what its record states; None if it does.

    Args:
        image: the encoded bytes.
        stated: the size and channels that they are to have.
        mask: the encoded mask, if there is one.
        bit_depth: of a mask's ids.
    """
    tf = tensorflow_in_threads()
    try:
        check_image(
            tf.constant(image), stated, None if mask is None else tf.constant(mask), bit_depth
        )
    except (tf.errors.OpError, BadImageError) as error:
        return first_line(error)
    return None


_SERVICES: dict[str, Callable[..., Any]] = {"audit": verify_shard, "decode_fault": decode_fault}


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
            service, arguments = connection.recv()
        except (EOFError, OSError):  # the other end is closed, or was while it had more to say
            return
        try:
            answer = _SERVICES[service](*arguments)
        except OSError as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked; may not pickle
            answer = RuntimeError(f"{type(error).__name__}: {error}")
        try:
            connection.send(answer)
        except OSError:
            return
