"""The verifier process: verifies shards with TensorFlow while this process still writes others.

Importing TensorFlow takes 3 s of a core. A separate process shares neither the interpreter's lock
with the writing nor, if TensorFlow crashes on a file, its end. It starts before this process has
imported anything else, so modules that take time are imported where they are used.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from recordmill.schemas.errors import RecordmillError
from recordmill.transforms.workers.cores import num_cores

if TYPE_CHECKING:
    from recordmill.schemas.config import Verify
    from recordmill.schemas.dataset_info import ShardVerification
    from recordmill.schemas.features import Schema
    from recordmill.schemas.plan import ResolvedSchema
    from recordmill.schemas.records import StoredImage
    from recordmill.transforms.storage.shard_files import ShardFiles

IN_PROCESS_RUNNERS = frozenset({"DirectRunner", "FnApiRunner"})

_verifiers: dict[int, VerifierProcess] = {}
"""By the process that started it, since a forked process does not inherit its parent's."""


def workers_are_threads(
    runner: str | None, direct_running_mode: str | None, environment_type: str | None
) -> bool:
    """Returns whether a run's workers are threads of the process that starts it.

    Only such workers reach the verifier process. Deciding takes no import of Beam.

    Args:
        runner: Beam's option of this name; None if it is not set.
        direct_running_mode: Beam's option of this name; None if it is not set.
        environment_type: Beam's option of this name; None if it is not set.
    """
    if (runner or "DirectRunner") in IN_PROCESS_RUNNERS:
        return direct_running_mode != "multi_processing"
    return environment_type == "LOOPBACK"


@contextmanager
def verifier_process_started() -> Iterator[None]:
    """Verifies in a separate process while the body runs.

    Starts none where one runs already, or where this process has TensorFlow imported.
    """
    process = os.getpid()
    if process in _verifiers or "tensorflow" in sys.modules:
        yield
        return
    verifier = _verifiers[process] = VerifierProcess(num_cores())
    try:
        yield
    finally:
        del _verifiers[process]
        verifier.end()


def current_verifier() -> VerifierProcess | None:
    """Returns the verifier process of this process; None if it has none."""
    return _verifiers.get(os.getpid())


def prepare() -> None:
    """Imports TensorFlow here, unless there is a verifier process."""
    if not current_verifier():
        from recordmill.transforms.verification.tensorflow_reader import tensorflow

        tensorflow()


def verify(shard: ShardFiles, resolved: ResolvedSchema, level: Verify) -> ShardVerification:
    """Verifies a shard with `verify_shard`, in the verifier process or else here.

    Args:
        shard: the shard's files.
        resolved: the schema that every record has to match.
        level: "parse" every record, or "decode" every image as well.

    Raises:
        OSError: if a file does not exist or cannot be read.
        RecordmillError: if the verifier process has died.
    """
    if verifier := current_verifier():
        return verifier.verify(shard, resolved, level)
    from recordmill.transforms.verification.verify_shard import verify_shard

    return verify_shard(shard, resolved, level)


def check_decodes(image: StoredImage, mask: bytes | None, schema: Schema) -> None:
    """Checks that TensorFlow decodes an image, and its mask, before they are written.

    Args:
        image: the image as the record will hold it.
        mask: its encoded mask, if it has one.
        schema: whether images are encoded, and the bit depth of masks.

    Raises:
        RecordError: corrupt, if TensorFlow does not decode it, or not to the size and channels that
            the record states.
        RecordmillError: if the verifier process has died.
    """
    from recordmill.schemas.features import ImageAttribute
    from recordmill.schemas.rejects import Reason, RecordError
    from recordmill.transforms.verification.verify_shard import decode_error

    if schema.encoded_image is None:
        return
    expected = {
        ImageAttribute.HEIGHT: image.height,
        ImageAttribute.WIDTH: image.width,
        ImageAttribute.CHANNELS: image.channels,
    }
    verifier = current_verifier()
    decode = verifier.decode_error if verifier else decode_error
    if error := decode(image.data, expected, mask, schema.masks.bit_depth):
        raise RecordError(Reason.CORRUPT, f"TensorFlow cannot decode it: {error}")


class VerifierProcess:
    """A process on this machine that verifies shards, until it is ended or this one dies.

    Attributes:
        pid: its process id.
    """

    def __init__(self, concurrency: int) -> None:
        """Starts the process.

        Args:
            concurrency: how many requests it answers at a time, each on a connection of its own.
        """
        pairs = [Pipe() for _ in range(concurrency)]
        theirs = [there.fileno() for _, there in pairs]
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve"
        self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-c", f"{code}({theirs!r})"],
            stdin=subprocess.PIPE,  # nothing is written: it is closed when this process ends
            stdout=subprocess.DEVNULL,
            pass_fds=theirs,
            start_new_session=True,  # a terminal sends Ctrl-C to the whole session
        )
        self.pid = self._process.pid
        self._free: SimpleQueue[Connection] = SimpleQueue()
        for here, there in pairs:
            there.close()
            self._free.put(here)

    def verify(
        self, shard: ShardFiles, resolved: ResolvedSchema, level: Verify
    ) -> ShardVerification:
        """Returns the result of `verify_shard` in the process.

        Args:
            shard: the shard's files.
            resolved: the schema that every record has to match.
            level: "parse" or "decode".

        Raises:
            RecordmillError: if the process has died.
        """
        what = f"{shard.file}: the process that re-reads it with TensorFlow"
        result: ShardVerification = self._request(what, "verify", shard, resolved, level)
        return result

    def decode_error(self, *arguments: Any) -> str | None:
        """Returns the result of `verify_shard.decode_error` in the process.

        Args:
            arguments: those of that function.

        Raises:
            RecordmillError: if the process has died.
        """
        what = "the process that decodes images with TensorFlow"
        error: str | None = self._request(what, "decode_error", *arguments)
        return error

    def _request(self, what: str, service: str, *arguments: Any) -> Any:
        connection = self._free.get()
        try:
            connection.send((service, arguments))
            answer = connection.recv()
        except (EOFError, OSError) as error:
            # A closed connection means a dead process or a dead thread in it. Killing the process
            # ends both cases; waiting for a process that lost one thread would never end.
            self._process.kill()
            code = self._process.wait()
            raise RecordmillError(f"{what} has died: {_exit_description(code)}") from error
        finally:
            self._free.put(connection)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self) -> None:
        """Kills the process, and waits for its end."""
        self._process.kill()
        self._process.communicate()  # waits, and closes the pipe


def _exit_description(code: int) -> str:
    """Returns how a process ended: its exit code, or the name of the signal."""
    return f"exit code {code}" if code >= 0 else signal.strsignal(-code) or f"signal {-code}"


def serve(descriptors: Sequence[int]) -> None:
    """Answers requests in the verifier process, until their connections are closed.

    Args:
        descriptors: the file descriptors of the connections.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.disable()  # imported objects stay: scanning them repeatedly during the import takes time
    from recordmill.transforms.verification.tensorflow_reader import thread_safe_tensorflow
    from recordmill.transforms.verification.verify_shard import decode_error, verify_shard

    services: dict[str, Callable[..., Any]] = {"verify": verify_shard, "decode_error": decode_error}
    thread_safe_tensorflow()
    gc.freeze()
    gc.enable()
    threads = [
        threading.Thread(target=_answer, args=(Connection(descriptor), services))
        for descriptor in descriptors
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)  # skips TensorFlow's clean-up, which takes time and changes nothing


def _end_with_parent() -> None:
    """Ends this process with the one that holds the other end of its standard input."""
    os.read(0, 1)
    os._exit(0)


def _answer(connection: Connection, services: dict[str, Callable[..., Any]]) -> None:
    while True:
        try:
            service, arguments = connection.recv()
        except (EOFError, OSError):  # the other end was closed, possibly within a request
            return
        try:
            answer = services[service](*arguments)
        except OSError as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - is raised by the requester; may not pickle
            answer = RuntimeError(f"{type(error).__name__}: {error}")
        try:
            connection.send(answer)
        except OSError:
            return
