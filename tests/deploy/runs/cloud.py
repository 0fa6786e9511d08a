"""Google Cloud on this machine: a bucket in an emulator, and a fake Dataflow service."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.stores.servers import fake_gcs, free_port, proxied, running

SERVICE = Path(__file__).with_name("dataflow_service.py")
BUCKET = "bucket"

_SECONDS = 60

_UPLOAD = """
import sys, pathlib
from google.cloud import storage
bucket, folder = storage.Client().bucket(sys.argv[1]), pathlib.Path(sys.argv[2])
for path in filter(pathlib.Path.is_file, folder.rglob("*")):
    bucket.blob(path.relative_to(folder.parent).as_posix()).upload_from_filename(path)
"""


@dataclass(frozen=True)
class Cloud:
    """The running servers.

    Attributes:
        python: a Python with Google's clients.
        environment: variables that redirect Google's clients to this machine.
        storage: URL of the storage emulator.
        service: URL of the Dataflow service.
        jobs: folder of the submitted jobs.
    """

    python: Path
    environment: Mapping[str, str]
    storage: str
    service: str
    jobs: Path

    def names(self, prefix: str) -> list[str]:
        """Returns the sorted names of the objects with a prefix."""
        query = urllib.parse.urlencode({"prefix": prefix})
        listed = json.loads(fetch(f"{self.storage}/storage/v1/b/{BUCKET}/o?{query}"))
        return sorted(item["name"] for item in listed.get("items", ()))

    def read(self, name: str) -> bytes:
        """Returns the content of an object."""
        return fetch(f"{self.storage}/storage/v1/b/{BUCKET}/o/{_quoted(name)}?alt=media")

    def upload(self, folder: Path) -> None:
        """Uploads the files of a folder to the bucket, under the name of the folder."""
        command = [self.python, "-c", _UPLOAD, BUCKET, folder]
        subprocess.run(list(map(str, command)), env=self.environment, check=True, timeout=_SECONDS)


@contextmanager
def google_cloud(python: Path, folder: Path) -> Iterator[Cloud]:
    """Starts both servers, the service with a given Python, and stops them at the end."""
    port, front, key = free_port(), free_port(), folder / "key.json"
    with (
        fake_gcs(folder, port, f"127.0.0.1:{front}") as server,
        proxied(server.url, folder, front) as storage,  # it fixes what the emulator's batches lack
    ):
        _make_bucket(storage.url)
        google = {"STORAGE_EMULATOR_HOST": storage.url, "GOOGLE_APPLICATION_CREDENTIALS": str(key)}
        url = f"http://localhost:{free_port()}"
        key.write_text(json.dumps(_service_account(f"{url}/token")))
        command = [python, SERVICE, folder, url.rpartition(":")[2]]
        with running(command, url, folder / "service.log", google):
            yield Cloud(python, {**os.environ, **google}, storage.url, url, folder)


def _make_bucket(storage: str) -> None:
    body = json.dumps({"name": BUCKET}).encode()
    headers = {"Content-Type": "application/json"}
    fetch(urllib.request.Request(f"{storage}/storage/v1/b", body, headers))  # noqa: S310


def fetch(request: str | urllib.request.Request) -> bytes:
    """Returns the response of a server on this machine."""
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - http, made here
        return answer.read()


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _service_account(token_uri: str) -> dict[str, str]:
    """Returns the key file of an account that exists only on this machine."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return {
        "type": "service_account",
        "project_id": "local-project",
        "private_key_id": "local",
        "private_key": pem.decode(),
        "client_email": "tests@local-project.iam",
        "client_id": "1",
        "token_uri": token_uri,
    }
