"""Google Cloud Storage, with the credentials that Beam itself finds there."""

from __future__ import annotations

import os
from datetime import timezone
from typing import Any

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from obstore.store import GCSStore

from recordmill.transforms.storage.stores.client import client_options

EMULATOR = "STORAGE_EMULATOR_HOST"
"""The environment variable by which Google's own client is sent to an emulator."""


def gcs_store(bucket: str, options: PipelineOptions, retries: Any) -> GCSStore:
    """Returns a client of a bucket.

    Raises:
        ImportError: without google-auth.
    """
    if emulator := os.environ.get(EMULATOR):
        url = emulator if "://" in emulator else f"http://{emulator}"
        access: dict[str, Any] = {"base_url": url, "skip_signature": True}
    else:
        url, access = "", _credentials(options)
    return GCSStore(bucket, client_options=client_options(url), retry_config=retries, **access)


def _credentials(options: PipelineOptions) -> dict[str, Any]:
    """Returns what signs requests; without credentials nothing does: the data may be public."""
    import google.auth.transport.requests
    from apache_beam.internal.gcp.auth import get_service_credentials

    skip = options.view_as(GoogleCloudOptions).no_auth
    found = None if skip else get_service_credentials(options)
    if found is None:
        return {"skip_signature": True}
    credentials = found.get_google_auth_credentials()
    request = google.auth.transport.requests.Request()

    def provide() -> dict[str, Any]:
        if not credentials.valid:
            credentials.refresh(request)
        expiry = credentials.expiry
        return {
            "token": credentials.token,
            "expires_at": expiry.replace(tzinfo=timezone.utc) if expiry else None,
        }

    return {"credential_provider": provide}
