"""Sends OpenLineage events in a thread: neither an error nor a slow endpoint changes a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import TYPE_CHECKING

from recordmill.schemas.errors import UsageError
from recordmill.schemas.masking import masked

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

# How long the end of a run waits for events that are not sent yet.
TIMEOUT = 5.0

_NAMED = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
_TRANSPORT = "OPENLINEAGE__TRANSPORT"

# The client would add the address of the repository in the working folder, with its credentials.
_CONFIG = {"facets": {"source_code_location": {"disabled": True}}}


def is_configured(environment: Mapping[str, str]) -> bool:
    """Returns whether environment variables of the OpenLineage client ask for events."""
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    is_named = any(environment.get(name) for name in _NAMED)
    return is_named or any(name.startswith(_TRANSPORT) for name in environment)


class Sender:
    """Sends events in their order, with the client's own configuration."""

    def __init__(self) -> None:
        self._events = SimpleQueue[Callable[[], "RunEvent"] | None]()
        self._errors = list[Exception]()
        self._made = self._sent = 0
        self._thread = threading.Thread(target=self._send_all, name="lineage", daemon=True)
        self._thread.start()

    def send(self, event: Callable[[], RunEvent]) -> None:
        """Sends an event, which the thread makes: only it imports the client."""
        self._made += 1
        self._events.put(event)

    def close(self, timeout: float = TIMEOUT) -> str | None:
        """Waits for all events to be sent; returns a warning if some were not."""
        self._events.put(None)
        self._thread.join(timeout)
        left = self._made - self._sent
        if not left:
            return None
        late = TimeoutError(f"the endpoint did not answer within {timeout:g} s")
        why = _reason(self._errors[0] if self._errors else late)
        return f"{left} of {self._made} OpenLineage events were not sent: {why}"

    def _send_all(self) -> None:
        try:
            from openlineage.client import OpenLineageClient

            client = OpenLineageClient(config=_CONFIG)
            while (make := self._events.get()) is not None:
                self._emit(client, make)
            client.close(TIMEOUT)
        except Exception as error:  # noqa: BLE001 - transports raise exceptions of any type
            self._errors.append(error)

    def _emit(self, client: OpenLineageClient, make: Callable[[], RunEvent]) -> None:
        try:
            client.emit(make())
            self._sent += 1
        except Exception as error:  # noqa: BLE001 - transports raise exceptions of any type
            self._errors.append(error)


def _reason(error: Exception) -> str:
    if isinstance(error, UsageError):  # has its own remedy
        return str(error)
    text, remedy = str(error) or type(error).__name__, "Check the endpoint"
    if isinstance(error, ModuleNotFoundError) and f"{error.name}".startswith("openlineage"):
        text, remedy = "its client is not installed", "Install recordmill[lineage]"
    return f"{masked(text)}. {remedy}, or set OPENLINEAGE_DISABLED=true."
