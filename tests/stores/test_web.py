"""Images and tables on the web: limits, retries, and no access to private hosts."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.schemas.rejects import RecordError
from recordmill.transforms.storage import files
from recordmill.transforms.storage.stores import store as store_module
from recordmill.transforms.storage.stores import web
from recordmill.transforms.storage.stores.beam import use_pipeline_options
from recordmill.transforms.storage.stores.store import stop_after_attempt
from tests.end_to_end.command import recordmill
from tests.stores.conftest import FLAGS, IMAGES
from tests.stores.test_conversion import contents
from tests.stores.text_table import TABLE, in_ranges, read_at_once
from tests.stores.web_server import BODY, Site, serving

ALLOW = "--allow_private_hosts"


@pytest.fixture
def site(gallery: Path) -> Iterator[Site]:
    """A web server that serves the images; reading from this private host is allowed."""
    use_pipeline_options(PipelineOptions([ALLOW, "--http_timeout=1"]))
    with serving(gallery) as site:
        yield site


@pytest.fixture
def three_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits retries to three attempts."""
    monkeypatch.setattr(store_module._attempts, "stop", stop_after_attempt(3))


def error_of(uri: str) -> str:
    """Returns the error of reading a file."""
    with pytest.raises(RecordError) as caught:
        files.read_bytes(uri)
    missing = "no such file" in caught.value.detail
    assert caught.value.reason == ("missing_file" if missing else "read_error")
    return caught.value.detail


def test_a_table_and_images_on_the_web_give_the_same_dataset(
    site: Site, local: Path, tmp_path: Path
) -> None:
    table = f"{site.url}/files/labels.csv"
    command = ["convert", "--input", table, "--output", tmp_path, "--name", "birds", *FLAGS, ALLOW]
    ended = recordmill(*command, "--no_report")  # which reads rejected images again
    assert ended.code == 0, ended.err
    assert contents(tmp_path / "birds" / "1.0.0") == contents(local)
    images = {path: count for path, count in site.seen.items() if "/images/" in path}
    # The first image is read once more, before the pipeline starts (--fail_fast).
    assert sorted(images.values()) == [1] * (IMAGES + 2) + [2]
    assert len(images) == IMAGES + 3
    assert site.most_at_once <= 16
    assert site.connections <= 40  # kept open, and used again


@pytest.mark.usefixtures("site")  # for its options
def test_a_text_table_is_read_in_byte_ranges_where_the_host_sends_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large.csv").write_bytes(TABLE)
    with serving(tmp_path) as site:
        ranged, whole = f"{site.url}/parts/large.csv", f"{site.url}/files/large.csv"
        assert in_ranges(ranged, 1000) == read_at_once(TABLE)
        assert files.ranged_size(whole) is None
        assert files.ranged_size(f"{site.url}/files/none.csv") is None
        monkeypatch.setattr(web, "_SPOOLED_BYTES", 1000)
        monkeypatch.setattr(web, "_downloaded", None)
        with files.open_binary(ranged) as stream:
            assert stream.read() == TABLE


def test_a_dry_run_has_the_same_access_to_private_hosts(site: Site, tmp_path: Path) -> None:
    table = tmp_path / "one.csv"
    table.write_text(f"image,label\n{site.url}/files/images/0/{quote('a #000 ü.png')},x\n")
    command = ["convert", "--input", table, "--output", tmp_path, "--name", "x", "--dry_run"]
    ended = recordmill(*command, ALLOW)
    assert (ended.code, ended.err) == (0, "")
    assert recordmill(*command).code == 4


def test_ranges_are_requested_and_extracted_if_the_host_ignores_them(site: Site) -> None:
    assert files.read_bytes(f"{site.url}/ranges/x", 10, 20) == BODY[10:20]
    assert files.read_bytes(f"{site.url}/whole", 10, 20) == BODY[10:20]
    assert files.read_bytes(f"{site.url}/whole") == BODY
    assert files.file_size(f"{site.url}/whole") == len(BODY)
    assert files.exists(f"{site.url}/whole")
    assert not files.exists(f"{site.url}/status/404")


@pytest.mark.parametrize("how", ["503", "429", "500", "408", "reset", "short", "stall"])
def test_transient_failures_are_retried(how: str, site: Site, three_attempts: None) -> None:
    assert files.read_bytes(f"{site.url}/flaky/{how}") == BODY
    assert site.seen[f"/flaky/{how}"] == 3


SAID = {
    "/status/404": "no such file (404 Not Found)",
    "/status/410": "no such file (410 Gone)",
    "/status/403": "access denied (403 Forbidden). Check the permissions, and that the signature "
    "has not expired.",
    "/status/418": "the host responds with 418 I'm a Teapot",
    "/away?file:///etc/passwd": "redirected to file:, which is not followed",
}


@pytest.mark.parametrize("path", SAID)
def test_permanent_errors_are_reported_without_retries(path: str, site: Site) -> None:
    name = path.partition("?")[0]
    assert error_of(f"{site.url}{path}").endswith(f": {SAID[path]}")
    assert site.seen[name] == 1


def test_persistent_failures_are_reported_with_the_attempts(
    site: Site, three_attempts: None
) -> None:
    said = error_of(f"{site.url}/status/503?token=abc")
    assert said.startswith(f"{site.url}/status/503?token=***: the host responds with 503 Service")
    assert "; given up after 3 attempts in " in said
    assert site.seen["/status/503"] == 3


def test_redirects_are_followed_up_to_a_limit(site: Site) -> None:
    assert files.read_bytes(f"{site.url}/to/to/to/whole") == BODY
    assert "redirected more than 5 times" in error_of(f"{site.url}" + "/to" * 7 + "/whole")


def test_logins_are_sent_only_to_their_host_and_never_shown(site: Site) -> None:
    with_login = site.url.replace("//", "//me:p%40ss@")
    assert files.read_bytes(f"{with_login}/whole") == BODY
    assert site.logins == ["Basic bWU6cEBzcw=="]
    elsewhere = site.url.replace("127.0.0.1", "localhost")
    files.read_bytes(f"{with_login}/away?{elsewhere}/whole")
    assert site.logins[1:] == ["Basic bWU6cEBzcw==", ""]
    said = error_of(f"{with_login}/status/404?key=abc")
    assert "p%40ss" not in said
    assert "abc" not in said


def test_files_above_the_limit_are_not_read(site: Site) -> None:
    use_pipeline_options(PipelineOptions([ALLOW, "--max_image_bytes=1000000"]))
    said = error_of(f"{site.url}/unbounded")
    assert said.endswith("is larger than 1,000,000 bytes; --max_image_bytes allows no more")
    use_pipeline_options(PipelineOptions([ALLOW, f"--http_max_bytes={len(BODY)}"]))
    assert files.read_bytes(f"{site.url}/whole") == BODY


def test_concurrent_requests_to_a_host_are_limited(site: Site) -> None:
    use_pipeline_options(PipelineOptions([ALLOW, "--http_connections=3"]))
    with ThreadPoolExecutor(24) as executor:
        found = list(executor.map(files.read_bytes, [f"{site.url}/slow/{n}" for n in range(24)]))
    assert found == [BODY] * 24
    assert site.most_at_once == 3
    assert site.connections == 3


INSIDE = ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0.0.0.0")


@pytest.mark.parametrize("host", INSIDE)
def test_private_hosts_are_rejected_before_a_request(host: str, site: Site) -> None:
    use_pipeline_options(PipelineOptions([]))
    said = error_of(site.url.replace("127.0.0.1", host) + "/whole")
    assert "which is not a public address; allow it with --allow_private_hosts" in said
    assert (site.connections, sum(site.seen.values())) == (0, 0)


def test_neither_redirects_nor_dns_rebinding_reach_private_hosts(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A public name whose address becomes private between the check and the connection."""
    public, port = "93.184.215.14", int(site.url.rpartition(":")[2])
    names = {"once.example": [public, "127.0.0.1"], "twice.example": ["127.0.0.1"]}
    resolve, connect = socket.getaddrinfo, socket.socket.connect
    connected: list[str] = []

    def resolving(host: str, *arguments: object, **options: object) -> object:
        answers = names.get(host, [host])
        address = answers.pop(0) if len(answers) > 1 else answers[0]
        return resolve(address, *arguments, **options)

    def connecting(self: socket.socket, address: tuple[str, int]) -> None:
        connected.append(address[0])
        connect(self, ("127.0.0.1", port))  # that public host is played by the site

    monkeypatch.setattr(socket, "getaddrinfo", resolving)
    monkeypatch.setattr(socket.socket, "connect", connecting)
    use_pipeline_options(PipelineOptions([]))
    assert files.read_bytes(f"http://once.example:{port}/whole") == BODY
    assert connected == [public]
    names["once.example"] = [public]
    inside = f"http://once.example:{port}/away?http://twice.example:{port}/whole"
    assert "twice.example is at 127.0.0.1, which is not a public address" in error_of(inside)
    assert set(connected) == {public}
    assert site.seen == {"/whole": 1, "/away": 1}


def test_invalid_addresses_are_rejects(site: Site) -> None:
    for broken in ("http://[bad/x", "http://host:port/x", "http:///x"):
        assert "is not a valid web address" in error_of(broken)


def test_the_web_is_read_only(site: Site, gallery: Path) -> None:
    command = ["convert", "--input", gallery / "labels.csv", "--name", "birds"]
    ended = recordmill(*command, "--output", f"{site.url}/out?token=abc")
    assert ended.code == 2
    assert "is a web address, which cannot be written to" in ended.err
    assert "abc" not in ended.err


def test_secrets_in_a_table_are_not_in_the_dataset(site: Site, tmp_path: Path) -> None:
    table = f"{site.url.replace('//', '//me:pw@')}/files/labels.csv?signature=abc"
    command = ["convert", "--input", table, "--output", tmp_path, "--name", "birds", *FLAGS, ALLOW]
    ended = recordmill(*command, "--input_format=csv")
    assert ended.code == 0, ended.err
    dataset = tmp_path / "birds" / "1.0.0"
    (shown,) = json.loads((dataset / "manifest.json").read_bytes())["config"]["inputs"]
    assert shown == f"{site.url.replace('//', '//***@')}/files/labels.csv?signature=***"
    for path in dataset.rglob("*"):
        if path.is_file():
            assert b"signature=abc" not in path.read_bytes()
            assert b"me:pw@" not in path.read_bytes()
