"""Azure Blob Storage: a connection string, or else the identity that Beam itself finds."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Any

from apache_beam.options.pipeline_options import AzureOptions, PipelineOptions
from obstore.store import AzureStore

from recordmill.transforms.storage.stores.client import client_options

_SCOPE = "https://storage.azure.com/.default"


def azure_store(account: str, container: str, options: PipelineOptions, retries: Any) -> AzureStore:
    """Returns a client of a container of a storage account.

    Raises:
        ImportError: without azure-identity, where there is no connection string.
    """
    azure = options.view_as(AzureOptions)
    text = azure.azure_connection_string or os.environ.get("AZURE_STORAGE_CONNECTION_STRING")
    said = connection(text) if text else {}
    endpoint = said.get("endpoint") or azure.blob_service_endpoint
    config: dict[str, Any] = {"endpoint": endpoint.rstrip("/")} if endpoint else {}
    keys: dict[str, Any] = {name: said[name] for name in ("account_key", "sas_key") if name in said}
    return AzureStore(
        container,
        account_name=account,
        client_options=client_options(endpoint),
        retry_config=retries,
        **config,
        **(keys or _identity(options)),
    )


def connection(text: str) -> dict[str, str]:
    """Returns what a connection string says: account_key, sas_key and endpoint, those it has.

    >>> connection("AccountName=birds;AccountKey=abc==;EndpointSuffix=core.windows.net")
    {'account_key': 'abc==', 'endpoint': 'https://birds.blob.core.windows.net'}
    """
    pairs = (part.partition("=") for part in text.split(";") if part.strip())
    parts = {name.strip().lower(): value.strip() for name, _, value in pairs}
    endpoint = parts.get("blobendpoint")
    if not endpoint and "accountname" in parts:
        protocol = parts.get("defaultendpointsprotocol", "https")
        suffix = parts.get("endpointsuffix", "core.windows.net")
        endpoint = f"{protocol}://{parts['accountname']}.blob.{suffix}"
    said = {
        "account_key": parts.get("accountkey"),
        "sas_key": parts.get("sharedaccesssignature"),
        "endpoint": endpoint,
    }
    return {name: value for name, value in said.items() if value}


def _identity(options: PipelineOptions) -> dict[str, Any]:
    from apache_beam.internal.azure.auth import get_service_credentials

    credential = get_service_credentials(options)
    if credential is None:
        raise ImportError("azure-identity is not installed")

    def provide() -> dict[str, Any]:
        token = credential.get_token(_SCOPE)
        return {
            "token": token.token,
            "expires_at": datetime.fromtimestamp(token.expires_on, timezone.utc),
        }

    return {"credential_provider": provide}
