"""What all clients of object stores have in common: how long they wait, and how often they try."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from recordmill.transforms.storage.stores.persistence import ATTEMPTS

ONCE: Any = {"max_retries": 0}
"""Whether to try again is settled in `persistence`, for all stores alike."""

MANY_PAGES: Any = {
    "max_retries": ATTEMPTS - 1,
    "backoff": {"init_backoff": timedelta(milliseconds=250), "max_backoff": timedelta(seconds=16)},
}
"""But a page of a listing is had again by the client, for it alone knows where the page begins."""


def client_options(endpoint: str | None = None) -> Any:
    """Returns the timeouts of requests; and whether they may go unencrypted, as `endpoint` says."""
    return {
        "connect_timeout": timedelta(seconds=10),
        "read_timeout": timedelta(seconds=30),  # without a byte
        "timeout": timedelta(minutes=10),
        "allow_http": bool(endpoint) and str(endpoint).startswith("http:"),
    }
