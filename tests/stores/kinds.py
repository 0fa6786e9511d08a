"""The kinds of stores under test, with the paths, flags and environment that a user needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.stores import servers
from tests.stores.servers import S3_KEYS, Proxy

AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = (  # of every emulator, and no secret
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass
class Store:
    """A running store.

    Attributes:
        root: what its paths begin with: a bucket that is there.
        flags: how recordmill is reported of it.
        put: writes an object, with the store's own client.
        get: reads one.
        names: the names of all objects that begin with a prefix.
        proxy: what counts and disturbs the requests.
        url_path: what the path of a request for an object begins with.
        folder: where the server keeps its files.
        env: the environment that it takes besides.
    """

    root: str
    flags: list[str]
    put: Callable[[str, bytes], object]
    get: Callable[[str], bytes]
    names: Callable[[str], list[str]]
    proxy: Proxy
    url_path: str
    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def reading_flags(self) -> list[str]:
        """The flags of commands without a pipeline."""
        return [flag for flag in self.flags if not flag.startswith("--project=")]

    def upload(self, folder: Path, prefix: str) -> None:
        """Writes all files of a folder."""
        paths = [path for path in folder.rglob("*") if path.is_file()]
        names = [f"{prefix}/{path.relative_to(folder)}" for path in paths]
        with ThreadPoolExecutor(8) as executor:
            list(executor.map(self.put, names, [path.read_bytes() for path in paths]))

    def download(self, prefix: str, folder: Path) -> Path:
        """Reads all objects below a prefix into a folder."""
        for name in self.names(f"{prefix}/"):
            path = folder / name[len(prefix) + 1 :]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.get(name))
        return folder


@contextmanager
def s3(folder: Path, start: Callable[[Path], object]) -> Iterator[Store]:
    """Yields a bucket of an S3 server."""
    import boto3

    with start(folder) as server, servers.proxied(server.url, folder) as proxy:  # type: ignore[attr-defined]
        key, secret = S3_KEYS
        client = boto3.client(
            "s3",
            endpoint_url=server.url,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            region_name="us-east-1",
        )
        client.create_bucket(Bucket="birds")
        pages = client.get_paginator("list_objects_v2")
        yield Store(
            root="s3://birds",
            flags=[
                f"--s3_endpoint_url={proxy.url}",
                f"--s3_access_key_id={key}",
                f"--s3_secret_access_key={secret}",
                "--s3_region_name=us-east-1",
            ],
            put=lambda name, data: client.put_object(Bucket="birds", Key=name, Body=data),
            get=lambda name: client.get_object(Bucket="birds", Key=name)["Body"].read(),
            names=lambda prefix: [
                entry["Key"]
                for page in pages.paginate(Bucket="birds", Prefix=prefix)
                for entry in page.get("Contents", ())
            ],
            proxy=proxy,
            url_path="/birds/",
            folder=folder,
        )


@contextmanager
def gcs(folder: Path) -> Iterator[Store]:
    """Yields a bucket of a Google Cloud Storage server."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    port, front = servers.free_port(), servers.free_port()
    with (
        servers.fake_gcs(folder, port, f"127.0.0.1:{front}") as server,
        servers.proxied(server.url, folder, front) as proxy,
    ):
        client = storage.Client(
            project="birds",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": server.url},
        )
        bucket = client.create_bucket("birds")
        yield Store(
            root="gs://birds",
            flags=["--project=birds"],
            put=lambda name, data: bucket.blob(name).upload_from_string(data),
            get=lambda name: bucket.blob(name).download_as_bytes(),
            names=lambda prefix: [blob.name for blob in client.list_blobs("birds", prefix=prefix)],
            proxy=proxy,
            url_path="/birds/",
            folder=folder,
            env={"STORAGE_EMULATOR_HOST": proxy.url},
        )


@contextmanager
def azure(folder: Path) -> Iterator[Store]:
    """Yields a container of an Azure Blob Storage server."""
    from azure.storage.blob import BlobServiceClient

    with (
        servers.azurite(folder) as server,
        servers.proxied(server.url, folder) as proxy,
    ):
        said = f"DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};AccountKey={AZURE_KEY}"
        account = BlobServiceClient.from_connection_string(
            f"{said};BlobEndpoint={server.url}/{AZURE_ACCOUNT}"
        )
        container = account.create_container("birds")
        yield Store(
            root=f"azfs://{AZURE_ACCOUNT}/birds",
            flags=[
                f"--azure_connection_string={said};BlobEndpoint={proxy.url}/{AZURE_ACCOUNT}",
            ],
            put=lambda name, data: container.upload_blob(name, data, overwrite=True),
            get=lambda name: container.download_blob(name).readall(),
            names=lambda prefix: list(container.list_blob_names(name_starts_with=prefix)),
            proxy=proxy,
            url_path=f"/{AZURE_ACCOUNT}/birds/",
            folder=folder,
        )


@contextmanager
def hdfs(folder: Path) -> Iterator[Store]:
    """Yields a folder of an HDFS cluster."""
    from hdfs import InsecureClient

    with servers.hdfs(folder) as server, servers.proxied(server.url, folder) as proxy:
        client = InsecureClient(server.url, user="birds")

        def read(name: str) -> bytes:
            with client.read(f"/birds/{name}") as reader:
                return reader.read()

        def names(prefix: str) -> list[str]:
            return [
                name
                for above, _, files in client.walk("/birds")
                for name in (f"{above}/{file}".removeprefix("/birds/") for file in files)
                if name.startswith(prefix)
            ]

        client.makedirs("/birds")
        yield Store(
            root="hdfs://birds",
            flags=["--hdfs_host=127.0.0.1", f"--hdfs_port={proxy.port}", "--hdfs_user=birds"],
            put=lambda name, data: client.write(f"/birds/{name}", data=data, overwrite=True),
            get=read,
            names=names,
            proxy=proxy,
            url_path="/webhdfs/v1/birds/",
            folder=folder,
        )


KINDS: dict[str, Callable[[Path], object]] = {
    "versitygw": lambda folder: s3(folder, servers.versitygw),
    "moto": lambda folder: s3(folder, servers.moto),
    "gcs": gcs,
    "azure": azure,
    "hdfs": hdfs,
}
