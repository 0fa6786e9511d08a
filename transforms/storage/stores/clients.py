"""Creates clients of S3, Google Cloud Storage and Azure.

Credentials are looked up as the libraries of each do: flags, environment, profiles, the machine's
role.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from obstore.store import AzureStore, GCSStore, S3Store

from recordmill.transforms.storage.stores.options import StoreOptions
from recordmill.transforms.storage.stores.store import ATTEMPTS

# Turns off the client's retries, because `retries` is the policy for all stores.
ONCE: Any = {"max_retries": 0}

# Retries by the client, for listings: only the client can continue at a page. Each of its waits is
# random, but never below the first, so that these outlast an outage as those of `retries` do.
MANY_PAGES: Any = {
    "max_retries": 2 * ATTEMPTS,
    "backoff": {"init_backoff": timedelta(seconds=1), "max_backoff": timedelta(seconds=16)},
}

# The flags of Beam for S3, by the name that pyiceberg gives them.
_ICEBERG = {
    "s3.endpoint": "s3_endpoint_url",
    "s3.region": "s3_region_name",
    "s3.access-key-id": "s3_access_key_id",
    "s3.secret-access-key": "s3_secret_access_key",
    "s3.session-token": "s3_session_token",
}

# The environment variable of Google's client for the address of an emulator.
GCS_EMULATOR = "STORAGE_EMULATOR_HOST"

_GOOGLE_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]

_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")
_DEFAULT_REGION = "us-east-1"

# How long credentials are cached; boto3 renews them before they expire.
_CREDENTIALS_LAST = timedelta(minutes=5)

# Access without credentials, which public buckets allow.
_UNSIGNED = {"skip_signature": True}


def s3_store(bucket: str, options: StoreOptions, retries: Any) -> S3Store:
    """Returns a client of a bucket.

    `retries` is the retry configuration, `ONCE` or `MANY_PAGES`. Raises ImportError if boto3 is not
    installed.
    """
    from obstore.auth.boto3 import Boto3CredentialProvider

    session, endpoint, region = _s3_session(bucket, options)
    access: dict[str, Any] = _UNSIGNED
    if session.get_credentials() is not None:
        access = {"credential_provider": Boto3CredentialProvider(session, ttl=_CREDENTIALS_LAST)}
    return S3Store(
        bucket,
        endpoint=endpoint,
        region=region,
        client_options=_client_options(endpoint) | _trust(options.s3_verify),
        retry_config=retries,
        **access,
    )


def s3_settings(bucket: str, options: StoreOptions) -> dict[str, str]:
    """Returns the settings of a bucket for libraries with their own client, in Rust's object_store.

    Raises ImportError if boto3 is not installed.
    """
    session, endpoint, region = _s3_session(bucket, options)
    found = {"aws_endpoint": endpoint, "aws_region": region}
    if endpoint.startswith("http://"):
        found["aws_allow_http"] = "true"
    if (credentials := session.get_credentials()) is None:
        return {**found, "aws_skip_signature": "true"}
    frozen = credentials.get_frozen_credentials()
    found |= {"aws_access_key_id": frozen.access_key, "aws_secret_access_key": frozen.secret_key}
    return {**found, "aws_session_token": frozen.token} if frozen.token else found


def iceberg_settings(options: StoreOptions) -> dict[str, str]:
    """Returns the flags for S3 as pyiceberg names them; without those that are not given.

    pyiceberg reads its own configuration and the environment for the others.
    """
    found = {name: getattr(options, flag) for name, flag in _ICEBERG.items()}
    return {name: value for name, value in found.items() if value is not None}


def _s3_session(bucket: str, options: StoreOptions) -> tuple[Any, str, str]:
    """Returns the session of boto3, and the endpoint and the region of a bucket."""
    import boto3  # an extra, and slow to import

    session = boto3.session.Session(
        aws_access_key_id=options.s3_access_key_id,
        aws_secret_access_key=options.s3_secret_access_key,
        aws_session_token=options.s3_session_token,
    )
    client = session.client(
        "s3",
        region_name=options.s3_region_name,
        endpoint_url=options.s3_endpoint_url,
        use_ssl=not options.s3_disable_ssl,
    )
    endpoint, region = client.meta.endpoint_url, client.meta.region_name
    # A bucket answers only in its own region. Other servers, such as MinIO, have a single region.
    if urlsplit(endpoint).netloc.endswith(_AMAZON):
        region = _region_of(client, bucket) or region
        endpoint = session.client("s3", region_name=region).meta.endpoint_url
    return session, endpoint, _DEFAULT_REGION if region in (None, "aws-global") else region


def _region_of(client: Any, bucket: str) -> str | None:
    """Returns the region of a bucket, which S3 states even when it denies access."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        head = client.head_bucket(Bucket=bucket)["ResponseMetadata"]
    except ClientError as error:
        head = error.response["ResponseMetadata"]  # the header is part of a 403 response, too
    except BotoCoreError:  # missing credentials, for example: the read reports a better error
        return None
    region: str | None = head["HTTPHeaders"].get("x-amz-bucket-region")
    return region


def gcs_store(bucket: str, options: StoreOptions, retries: Any) -> GCSStore:
    """Returns a client of a bucket."""
    if emulator := os.environ.get(GCS_EMULATOR):
        url = emulator if "://" in emulator else f"http://{emulator}"
        # Emulators ignore the token: obstore always signs writes.
        token = {"token": "emulator", "expires_at": None}
        access: dict[str, Any] = {"base_url": url, "credential_provider": lambda: token}
    else:
        url, access = "", _google_access(options)
    return GCSStore(bucket, client_options=_client_options(url), retry_config=retries, **access)


def _google_access(options: StoreOptions) -> dict[str, Any]:
    if options.no_auth:
        return _UNSIGNED
    try:
        import google.auth
        from google.auth import impersonated_credentials
    except ImportError:  # public buckets need neither the extra nor credentials
        return _UNSIGNED
    from obstore.auth.google import GoogleCredentialProvider

    try:
        found, _ = google.auth.default(scopes=_GOOGLE_SCOPES)
    except google.auth.exceptions.DefaultCredentialsError:
        return _UNSIGNED
    if options.impersonate_service_account:
        *delegates, target = options.impersonate_service_account.split(",")
        found = impersonated_credentials.Credentials(found, target, _GOOGLE_SCOPES, delegates)
    return {"credential_provider": GoogleCredentialProvider(found)}


def azure_store(account: str, container: str, options: StoreOptions, retries: Any) -> AzureStore:
    """Returns a client of a container of a storage account, by connection string or identity."""
    text = options.azure_connection_string or os.environ.get("AZURE_STORAGE_CONNECTION_STRING")
    settings = _connection(text) if text else {}
    endpoint = settings.get("endpoint") or options.blob_service_endpoint
    config: dict[str, Any] = {"endpoint": endpoint.rstrip("/")} if endpoint else {}
    keys: dict[str, Any] = {
        name: settings[name] for name in ("account_key", "sas_key") if name in settings
    }
    return AzureStore(
        container,
        account_name=account,
        client_options=_client_options(endpoint),
        retry_config=retries,
        **config,
        **(keys or _azure_access(options)),
    )


def _connection(text: str) -> dict[str, str]:
    """Parses a connection string into account_key, sas_key and endpoint, where present.

    >>> _connection("AccountName=birds;AccountKey=abc==;EndpointSuffix=core.windows.net")
    {'account_key': 'abc==', 'endpoint': 'https://birds.blob.core.windows.net'}
    """
    pairs = (part.partition("=") for part in text.split(";") if part.strip())
    parts = {name.strip().lower(): value.strip() for name, _, value in pairs}
    endpoint = parts.get("blobendpoint")
    if not endpoint and "accountname" in parts:
        protocol = parts.get("defaultendpointsprotocol", "https")
        suffix = parts.get("endpointsuffix", "core.windows.net")
        endpoint = f"{protocol}://{parts['accountname']}.blob.{suffix}"
    settings = {
        "account_key": parts.get("accountkey"),
        "sas_key": parts.get("sharedaccesssignature"),
        "endpoint": endpoint,
    }
    return {name: value for name, value in settings.items() if value}


def _azure_access(options: StoreOptions) -> dict[str, Any]:
    from azure.identity import DefaultAzureCredential
    from obstore.auth.azure import AzureCredentialProvider

    client = options.azure_managed_identity_client_id
    return {
        "credential_provider": AzureCredentialProvider(
            DefaultAzureCredential(managed_identity_client_id=client)
        )
    }


def _client_options(endpoint: str | None = None) -> Any:
    """Returns the timeouts of requests; plain HTTP is allowed only for an http:// endpoint."""
    return {
        "connect_timeout": timedelta(seconds=10),
        "read_timeout": timedelta(seconds=30),  # between two bytes
        "timeout": timedelta(minutes=10),
        "allow_http": bool(endpoint) and str(endpoint).startswith("http:"),
    }


def _trust(verify: str | None) -> Any:
    """Returns the client option that trusts a certificate bundle besides the system's."""
    bundle = verify or os.environ.get("AWS_CA_BUNDLE")
    if not bundle or not os.path.isfile(bundle):
        return {}
    with open(bundle, "rb") as stream:
        return {"root_certificate": stream.read()}
