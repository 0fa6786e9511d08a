"""Secrets in web addresses and commands are masked."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.masking import masked, masked_command, masked_source, masked_url
from recordmill.schemas.rejects import Reason, Reject

URLS = {
    "http://host/a.jpg": "http://host/a.jpg",
    "https://user:pa%40ss@host:81/a b.jpg": "https://***@host:81/a b.jpg",
    "https://token@host/a": "https://***@host/a",
    "https://host/a?X-Amz-Signature=12&id=7": "https://host/a?X-Amz-Signature=***&id=***",
    "HTTPS://host/a?sig=a%2Fb#part": "HTTPS://host/a?sig=***",
    "http://host/a?secret": "http://host/a?***",
    "http://host/a?": "http://host/a?***",
    "http://host/a?=b&c=?d=e;f=&g": "http://host/a?=***&c=***;f=&***",
    "http://host/me@home?x=a@b": "http://host/me@home?x=***",
    "s3://bucket/a?b=c": "s3://bucket/a?b=c",  # a key like any other
    "/photos/a?b=c@d.jpg": "/photos/a?b=c@d.jpg",
}


@pytest.mark.parametrize("url", URLS)
def test_a_masked_address_keeps_only_its_location(url: str) -> None:
    assert masked_url(url) == URLS[url]


@given(st.text("abcdef0123456789+/%.-_~", min_size=6), st.sampled_from(["sig", "token", "a"]))
def test_all_values_of_a_query_are_masked(secret: str, name: str) -> None:
    shown = masked(f"cannot read 'https://host/x?{name}={secret}&b=1': 403")
    assert shown == f"cannot read 'https://host/x?{name}=***&b=***': 403"


@pytest.mark.parametrize(
    "part", ["?", "&", "=", "a=", "?=", ";", "#", "@", "http://h/?=", ":", "'", "'."]
)
@pytest.mark.parametrize("start", ["http://h/?=a&", "http://h/", "http://"])
def test_an_address_of_any_length_is_masked_in_linear_time(start: str, part: str) -> None:
    address = start + part * 200_000
    began = time.thread_time()  # of this thread: a busy machine does not matter
    masked_url(address)
    masked(address)
    assert time.thread_time() - began < 1


def test_addresses_in_a_text_are_masked() -> None:
    text = "a http://u:p@h/x and (https://h/y?k=v) and s3://b/k?x=1"
    assert masked(text) == "a http://***@h/x and (https://h/y?k=*** and s3://b/k?x=1"
    text = "'http://h/Ann's.jpg?x=y', 'https://h/y?k=v'. 'http://u'p:a@h/x'"
    assert masked(text) == "'http://h/Ann's.jpg?x=***', 'https://h/y?k=***'. 'http://***@h/x'"


@given(st.sampled_from([*URLS, *URLS.values(), "GET http://u:p@h/x?y=z: 503", "a ?sig=b&c"]))
def test_masking_is_idempotent(text: str) -> None:
    once = masked(text)
    assert masked(once) == once
    assert masked_source(f"{once}:17") == masked(f"{once}:17")


SECRETS = {
    "s3://me:hush@bucket/a": "s3://***@bucket/a",
    "hdfs://user@host/a": "hdfs://user@host/a",
    "abfss://container@account/a": "abfss://container@account/a",
    "https://h/a b.jpg?sig=hush&sv=1": "https://h/a b.jpg?sig=***&sv=1",
    "az://c/b?se=1&sig=hu%2Fsh": "az://c/b?se=1&sig=***",
    "x.csv?X-Amz-Security-Token=hush": "x.csv?X-Amz-Security-Token=***",
    "see?page=2": "see?page=2",
}


@pytest.mark.parametrize("text", SECRETS)
def test_credentials_are_masked_wherever_they_are_in_a_text(text: str) -> None:
    assert masked(f"cannot read {text} again") == f"cannot read {SECRETS[text]} again"


COMMANDS = [
    ["--s3_secret_access_key", "hush"],
    ["--s3_secret_access_key=hush"],
    ["--azure_connection_string=AccountKey=hush;x=y"],
    ["--environment_variables=AWS_SECRET_ACCESS_KEY=hush,A=b"],
    ["--sig=hush"],
    ["--input", "https://h/a b.csv?x=hush"],
    ["--input=https://h/a b.csv?x=hush"],
    ["--flink_master=http://me:hush@h:81"],
    ["--base", "https://hush@h/d"],
]


@pytest.mark.parametrize("flags", COMMANDS)
def test_all_secrets_of_a_command_are_masked(flags: list[str]) -> None:
    shown = list(masked_command(["convert", *flags, "--key_column", "id"]))
    assert "hush" not in " ".join(shown)
    assert shown[0] == "convert"
    assert shown[-2:] == ["--key_column", "id"]


def test_a_masked_source_location_keeps_its_line() -> None:
    assert masked_source("https://h/t.csv?sig=x:17") == "https://h/t.csv?sig=***:17"
    assert masked_source("t.csv:17") == "t.csv:17"
    assert masked_source("") == ""


def test_a_reject_is_written_masked() -> None:
    url = "https://me:pw@h/x.jpg?sig=abc"
    detail = f"{masked_url(url)}: no answer; given up"
    reject = Reject(url, url, "https://h/t.csv?sig=abc:17", Reason.READ_ERROR, detail)
    line = json.loads(reject.to_json())
    hidden = "https://***@h/x.jpg?sig=***"
    assert (line["key"], line["uri"]) == (hidden, hidden)
    assert line["source"] == "https://h/t.csv?sig=***:17"
    assert line["detail"] == f"{hidden}: no answer; given up"
