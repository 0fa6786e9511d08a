"""One boto3 client for Beam's S3 file system, which makes one for each file that it touches.

Each costs 180 ms of CPU, as much as 150 images, and connections of its own. Beam 2.77 has no place
to hand a client in. Threads may share a client of boto3; what Beam keeps beside it, the stream that
is being read, stays each file's own.
"""

from __future__ import annotations

import threading
from typing import Any

from apache_beam.io.aws import s3io

_lock = threading.Lock()
_shared: dict[str, Any] = {"options": None, "client": None}


def share_clients() -> None:
    """Has Beam's S3 file system make one client for the options that it is given."""
    if s3io.BOTO3_INSTALLED and not issubclass(s3io.boto3_client.Client, _Shared):
        s3io.boto3_client.Client = type("Client", (_Shared, s3io.boto3_client.Client), {})


class _Shared:
    """What is put before Beam's own client."""

    _download_request: Any = None
    _download_stream: Any = None
    _download_pos = 0

    def __init__(self, options: Any) -> None:
        with _lock:
            if _shared["options"] is not options:
                super().__init__(options)  # type: ignore[call-arg]
                _shared.update(options=options, client=vars(self)["client"])
            self.client = _shared["client"]
