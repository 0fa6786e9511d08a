"""Store servers: installed once into a cache, started on a free port of 127.0.0.1.

    versitygw         S3, on files             from the Go proxy
    moto              S3, in memory            from PyPI
    fake-gcs-server   Google Cloud Storage     from the Go proxy
    azurite           Azure Blob Storage       from npm
    hdfs              name node, data node     from Maven Central
    fault_proxy       faults between them      from its source next to this file

A server that cannot be installed fails the tests that need it; no test is skipped.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSITYGW = "v1.8.0"
FAKE_GCS = "v1.56.1"
MOTO = "5.2.5"
AZURITE = "3.35.0"
HADOOP = "3.4.1"

HERE = Path(__file__).parent
_START_SECONDS = 90
_INSTALL_SECONDS = 900


def cache() -> Path:
    """Returns the folder that servers are installed in, outside any checkout."""
    root = os.environ.get("RECORDMILL_CACHE") or Path.home() / ".cache" / "recordmill"
    return Path(root) / "stores"


@dataclass
class Server:
    """A running server.

    Attributes:
        url: where it listens.
    """

    url: str

    @property
    def port(self) -> int:
        """The port number."""
        return int(self.url.rpartition(":")[2])


@dataclass
class Proxy(Server):
    """A proxy of a server that counts requests and injects faults."""

    def set(self, **settings: object) -> None:
        """Changes the settings and resets the counts; see fault_proxy/main.go."""
        data = json.dumps(settings).encode()
        request = urllib.request.Request(f"{self.url}/__proxy", data, method="PUT")
        urllib.request.urlopen(request).read()

    def counts(self) -> dict[str, int]:
        """Returns how often each "METHOD /path" was requested."""
        return self._told()["counts"]

    def requests(self) -> list[str]:
        """Returns each "METHOD /path", in the order in which the requests arrived."""
        return self._told()["requests"]

    def bytes(self) -> dict[str, int]:
        """Returns the bytes of all answers to each "METHOD /path"."""
        return self._told()["bytes"]

    def faults(self) -> dict[str, int]:
        """Returns how often each fault was injected."""
        return self._told()["faults"]

    def _told(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/__proxy") as answer:
            return json.load(answer)


def free_port() -> int:
    """Returns a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def running(
    command: Sequence[object], url: str, log: Path, env: dict[str, str] | None = None
) -> Iterator[Server]:
    """Starts a server, waits until it answers, and stops it at the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=output,
            stderr=output,
            cwd=log.parent,
            env={**os.environ, **(env or {})},
        )
    try:
        _await(url, process, log)
        yield Server(url)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def _await(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    tail = log.read_text(errors="replace")[-2000:]
    raise AssertionError(f"{process.args} does not answer at {url}:\n{tail}")


@contextmanager
def versitygw(folder: Path) -> Iterator[Server]:
    """Yields an S3 server that stores objects as files; a second implementation besides moto."""
    program = _go("github.com/versity/versitygw/cmd/versitygw", VERSITYGW)
    (folder / "data").mkdir()
    url = f"http://127.0.0.1:{free_port()}"
    keys = {"ROOT_ACCESS_KEY": S3_KEYS[0], "ROOT_SECRET_KEY": S3_KEYS[1]}
    command = [program, "--port", url.removeprefix("http://"), "--quiet", "posix", folder / "data"]
    with running(command, url, folder / "versitygw.log", keys) as server:
        yield server


S3_KEYS = ("testkey1", "testsecret1")


@contextmanager
def moto(folder: Path) -> Iterator[Server]:
    """Yields an S3 server that stores objects in memory."""
    port = free_port()
    command = [_python_package(f"moto[server,s3]=={MOTO}") / "moto_server", "-p", port]
    with running(command, f"http://127.0.0.1:{port}", folder / "moto.log") as server:
        yield server


@contextmanager
def fake_gcs(folder: Path, port: int, public: str) -> Iterator[Server]:
    """Gives a Google Cloud Storage server that redirects clients to `public`."""
    program = _go("github.com/fsouza/fake-gcs-server", FAKE_GCS)
    command = [program, "-scheme", "http", "-host", "127.0.0.1", "-port", port]
    command += ["-backend", "memory", "-public-host", public, "-external-url", f"http://{public}"]
    with running(command, f"http://127.0.0.1:{port}", folder / "gcs.log") as server:
        yield server


@contextmanager
def azurite(folder: Path) -> Iterator[Server]:
    """Yields an Azure Blob Storage server."""
    program = _npm("azurite", AZURITE) / "azurite-blob"
    port = free_port()
    command = [program, "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    command += ["--blobHost", "127.0.0.1", "--blobPort", port, "--location", folder / "azurite"]
    with running(command, f"http://127.0.0.1:{port}", folder / "azurite.log") as server:
        yield server


@contextmanager
def proxied(upstream: str, folder: Path, port: int | None = None) -> Iterator[Proxy]:
    """Yields a proxy of a server."""
    url = f"http://127.0.0.1:{port or free_port()}"
    command = [_built_proxy(), "-listen", url.removeprefix("http://"), "-upstream", upstream]
    with running(command, url, folder / f"proxy-{upstream.rpartition(':')[2]}.log"):
        yield Proxy(url)


def _once(
    name: str, make: list[list[object]], made: Path, env: dict[str, str] | None = None
) -> Path:
    """Returns a path in the cache; runs the commands that create it if it does not exist."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:  # tests run in several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            for command in make:
                _make(name, [str(part) for part in command], {**os.environ, **(env or {})})
            assert made.exists(), f"{name} was installed, but {made} is missing"
    return made


def _make(name: str, command: list[str], env: dict[str, str]) -> None:
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
        env=env,
        stdin=subprocess.DEVNULL,
    )
    output = (ended.stdout + ended.stderr)[-2000:]
    assert ended.returncode == 0, f"{name} cannot be installed: {command}:\n{output}"


def _go(module: str, version: str) -> Path:
    name = module.rpartition("/")[2]
    folder = cache() / f"{name}-{version}"
    command: list[object] = ["go", "install", f"{module}@{version}"]
    return _once(name, [command], folder / name, {"GOBIN": str(folder)})


def _npm(package: str, version: str) -> Path:
    folder = cache() / f"{package}-{version}"
    command: list[object] = ["npm", "install", "--silent", "--prefix", folder]
    _once(package, [[*command, f"{package}@{version}"]], folder / "node_modules" / ".bin")
    return folder / "node_modules" / ".bin"


def _python_package(requirement: str) -> Path:
    folder = cache() / requirement.replace("[", "-").replace("]", "").replace(",", "-")
    made = folder / "installed"
    steps: list[list[object]] = [
        [sys.executable, "-m", "venv", "--clear", folder],
        [folder / "bin" / "python", "-m", "pip", "install", "--quiet", requirement],
        ["touch", made],
    ]
    _once(requirement, steps, made)
    return folder / "bin"


@contextmanager
def hdfs(folder: Path) -> Iterator[Server]:
    """Yields the WebHDFS server of a name node with one data node."""
    artifacts = ("hadoop-hdfs", "hadoop-hdfs-client", "hadoop-common")
    jars = maven("hadoop-hdfs", [f"org.apache.hadoop:{name}:{HADOOP}" for name in artifacts])
    port = free_port()
    conf = _hadoop_conf(folder, port)
    java: list[object] = ["java", "-Xmx256m", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
    java += ["-cp", f"{conf}:{jars}/*"]
    names, data = (
        "org.apache.hadoop.hdfs.server.namenode.NameNode",
        "org.apache.hadoop.hdfs.server.datanode.DataNode",
    )
    formatted = [*java, names, "-format", "-force", "-nonInteractive"]
    subprocess.run([str(part) for part in formatted], check=True, capture_output=True, timeout=120)
    url = f"http://127.0.0.1:{port}"
    with (
        running([*java, names], url, folder / "name.log") as server,
        running([*java, data], url, folder / "data.log"),
    ):
        _await_data_node(url, folder / "data.log")
        yield server


def _await_data_node(url: str, log: Path) -> None:
    query = f"{url}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        with urllib.request.urlopen(query) as answer:
            beans = json.load(answer)["beans"]
        if beans and beans[0]["NumLiveDataNodes"] == 1:
            return
        time.sleep(0.2)
    raise AssertionError(f"the data node does not join:\n{log.read_text()[-2000:]}")


def _hadoop_conf(folder: Path, port: int) -> Path:
    conf = folder / "conf"
    for app in ("hdfs", "datanode"):  # the web pages, which Maven's jars come without
        (conf / "webapps" / app / "WEB-INF").mkdir(parents=True)
        (conf / "webapps" / app / "WEB-INF" / "web.xml").write_text("<web-app/>")
    (conf / "webapps" / "static").mkdir()
    _write_properties(conf / "core-site.xml", {"fs.defaultFS": f"hdfs://127.0.0.1:{free_port()}"})
    settings = {
        "dfs.replication": "1",
        "dfs.namenode.name.dir": f"file://{folder}/name",
        "dfs.datanode.data.dir": f"file://{folder}/data",
        "dfs.namenode.http-address": f"127.0.0.1:{port}",
        "dfs.datanode.address": "127.0.0.1:0",
        "dfs.datanode.ipc.address": "127.0.0.1:0",
        "dfs.datanode.http.address": "127.0.0.1:0",
        "dfs.datanode.hostname": "127.0.0.1",
        "dfs.permissions.enabled": "false",
    }
    _write_properties(conf / "hdfs-site.xml", settings)
    (conf / "log4j.properties").write_text(
        "log4j.rootLogger=WARN,C\nlog4j.appender.C=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.C.layout=org.apache.log4j.SimpleLayout\n"
    )
    return conf


def _write_properties(path: Path, properties: dict[str, str]) -> None:
    entries = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in properties.items()
    )
    path.write_text(f"<configuration>{entries}</configuration>")


def maven(name: str, coordinates: Sequence[str]) -> Path:
    """Returns a folder of jars, with those that they need.

    Args:
        name: of the folder in the cache.
        coordinates: of the jars, as GROUP:ARTIFACT:VERSION.
    """
    text = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in (each.split(":") for each in coordinates)
    )
    folder = cache() / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    made, pom = folder / "jars", folder / "pom.xml"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        pom.write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>recordmill</groupId>"
            "<artifactId>tests</artifactId><version>1</version>"
            f"<dependencies>{text}</dependencies></project>"
        )
    whole = folder / "whole"  # so that a copy that was broken off is not taken for one
    steps: list[list[object]] = [
        [
            "mvn",
            "-B",
            "-q",
            "-f",
            pom,
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={made}",
        ],
        ["touch", whole],
    ]
    _once(name, steps, whole)
    return made


def _built_proxy() -> Path:
    source = HERE / "fault_proxy"
    digest = hashlib.sha256((source / "main.go").read_bytes()).hexdigest()[:12]
    made = cache() / f"fault_proxy-{digest}"
    return _once("fault_proxy", [["go", "build", "-C", source, "-o", made, "."]], made)
