"""The verifier process: verifies shards with TensorFlow while another process writes more of them.

A separate process does not contend for the writer's GIL, and if TensorFlow crashes on a file, only
that process dies. Commands start it before they import anything slow, so this module imports slow
modules inside functions. Each worker process of an engine starts its own.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from recordmill.schemas.layout import is_url
from recordmill.transforms.workers import service_process
from recordmill.transforms.workers.process import collect_garbage, num_cores

if TYPE_CHECKING:
    from recordmill.schemas.config import Verify
    from recordmill.schemas.dataset_info import ShardVerification
    from recordmill.schemas.features import Schema
    from recordmill.schemas.plan import ResolvedSchema
    from recordmill.schemas.records import StoredImage
    from recordmill.transforms.storage.shard_files import ShardFiles
    from recordmill.transforms.storage.stores.options import StoreOptions

# Environment of the process, unless the user sets other values.
_ENVIRONMENT = {
    # By default, glibc returns the memory of each larger image to the system and requests it again
    # for the next one: these page faults take as long as parsing. See mallopt(3).
    "MALLOC_MMAP_THRESHOLD_": str(8 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(32 * 2**20),
    # Each shard has a thread of ours: distributing its batches to more of them only takes time.
    "TF_NUM_INTRAOP_THREADS": "1",
}

IN_PROCESS_RUNNERS = frozenset({"DirectRunner", "FnApiRunner"})

# The verifier that a process started, by process id: a fork must not use its parent's.
_verifiers: dict[int, VerifierProcess] = {}
_STARTING = threading.Lock()


def workers_are_threads(
    runner: str | None, direct_running_mode: str | None, environment_type: str | None
) -> bool:
    """Returns whether a run's workers are threads of the process that starts it.

    Only such workers can use the verifier process. The decision does not import Beam.
    """
    if (runner or "DirectRunner") in IN_PROCESS_RUNNERS:
        return direct_running_mode != "multi_processing"
    return environment_type == "LOOPBACK"


@contextmanager
def verifier_process_started(options: StoreOptions | None = None) -> Iterator[None]:
    """Starts the verifier process for the duration of the body.

    Does nothing if one is running, or if this process has imported TensorFlow already. `options`:
    those with which it reads shards from stores; None for local shards.
    """
    process = os.getpid()
    if process in _verifiers or "tensorflow" in sys.modules:
        yield
        return
    _verifiers[process] = VerifierProcess(num_cores(), options)
    try:
        yield
    finally:
        _verifiers.pop(process).end()


def _current_verifier() -> VerifierProcess | None:
    return _verifiers.get(os.getpid())


def prepare(directory: str) -> None:
    """Starts the verifier process of a worker, if it has none that is alive.

    A worker that has imported TensorFlow already verifies shards itself.
    """
    with _STARTING:
        verifier = _current_verifier()
        if verifier and verifier.is_alive:
            return
        if "tensorflow" in sys.modules:
            from recordmill.transforms.verification.tensorflow_reader import load

            load()
            return
        _verifiers[os.getpid()] = VerifierProcess(num_cores(), _store_options(directory))


def _store_options(directory: str) -> StoreOptions | None:
    """Returns the store options of this process if a folder is in a store, and otherwise None."""
    if not is_url(directory):
        return None
    from recordmill.transforms.storage.stores.options import current_options

    return current_options()


def verify(shard: ShardFiles, resolved: ResolvedSchema, level: Verify) -> ShardVerification:
    """Verifies a shard with `verify_shard`, in the verifier process if one runs."""
    if verifier := _current_verifier():
        return verifier.verify(shard, resolved, level)
    from recordmill.transforms.verification.verify_shard import verify_shard

    return verify_shard(shard, resolved, level)


def check_decodes(image: StoredImage, mask: bytes | None, schema: Schema, name: str = "") -> None:
    """Checks that TensorFlow decodes an image and its mask, before they are written.

    `name` is that of the image; "" for the first. `mask` is its encoded mask; None if there is
    none. `schema`: states whether images are encoded, and the bit depth of masks. Raises
    RecordError (corrupt), if TensorFlow does not decode the image to the height, width and channels
    that the record states. Raises RecordmillError if the verifier process has died.
    """
    from recordmill.schemas.origins import ImageAttribute
    from recordmill.schemas.rejects import Reason, RecordError
    from recordmill.transforms.verification.verify_shard import decode_error

    if name not in schema.encoded_images.values():
        return
    expected = {
        ImageAttribute.HEIGHT: image.height,
        ImageAttribute.WIDTH: image.width,
        ImageAttribute.CHANNELS: image.channels,
    }
    verifier = _current_verifier()
    decode = verifier.decode_error if verifier else decode_error
    if error := decode(image.data, expected, mask, schema.masks.bit_depth):
        where = f"{name}: " if name else ""
        raise RecordError(Reason.CORRUPT, f"{where}TensorFlow cannot decode it: {error}")


class VerifierProcess(service_process.ServiceProcess):
    """A process on this machine that verifies shards until it is ended or this one dies."""

    def __init__(self, concurrency: int, options: StoreOptions | None = None) -> None:
        """Starts the process, which answers a number of requests concurrently."""
        super().__init__(__name__, concurrency, _ENVIRONMENT)
        self.send(options)

    def verify(
        self, shard: ShardFiles, resolved: ResolvedSchema, level: Verify
    ) -> ShardVerification:
        """Returns the result of `verify_shard`, called in the process.

        Raises RecordmillError if the process has died.
        """
        what = f"{shard.file}: the process that re-reads it with TensorFlow"
        result: ShardVerification = self.request(what, "verify", shard, resolved, level)
        return result

    def decode_error(self, *arguments: Any) -> str | None:
        """Returns the result of `verify_shard.decode_error`, called in the process.

        Raises RecordmillError if the process has died.
        """
        what = "the process that decodes images with TensorFlow"
        error: str | None = self.request(what, "decode_error", *arguments)
        return error


def serve(descriptors: Sequence[int]) -> None:
    """Answers requests in the verifier process until their connections are closed."""
    service_process.end_with_parent()
    connections = [Connection(descriptor) for descriptor in descriptors]
    try:
        options = connections[0].recv()
    except (EOFError, OSError):  # the other process has ended
        os._exit(0)
    if options:
        from recordmill.transforms.storage.stores.options import use_options

        use_options(options)
    from recordmill.transforms.verification.tensorflow_reader import load
    from recordmill.transforms.verification.verify_shard import decode_error, verify_shard

    services: dict[str, Callable[..., Any]] = {"verify": verify_shard, "decode_error": decode_error}
    try:
        load()
    except ImportError as error:  # in one line: the run reports that this process has died
        sys.exit(f"recordmill: {error}")
    collect_garbage()
    service_process.answer_in_threads(connections, services)
