"""S3, set up as Beam sets up its own client: by its options, and else by boto3's chain.

That is flags, then environment, then profiles, then the role of the machine.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlsplit

from apache_beam.options.pipeline_options import PipelineOptions, S3Options
from obstore.store import S3Store

from recordmill.transforms.storage.stores.client import client_options

_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")
_DEFAULT_REGION = "us-east-1"
_CREDENTIALS_LAST = timedelta(minutes=5)
"""How long a key is used before boto3 is asked again, which renews it in time."""


def s3_store(bucket: str, options: PipelineOptions, retries: Any) -> S3Store:
    """Returns a client of a bucket.

    Raises:
        ImportError: without boto3.
    """
    import boto3  # an extra, and slow to import

    s3 = options.view_as(S3Options)
    session = boto3.session.Session(
        aws_access_key_id=s3.s3_access_key_id,
        aws_secret_access_key=s3.s3_secret_access_key,
        aws_session_token=s3.s3_session_token,
    )
    client = session.client(
        "s3",
        region_name=s3.s3_region_name,
        endpoint_url=s3.s3_endpoint_url,
        use_ssl=not s3.s3_disable_ssl,
    )
    endpoint, region = client.meta.endpoint_url, client.meta.region_name
    if urlsplit(endpoint).netloc.endswith(_AMAZON):  # elsewhere there is one region
        region = region_of(client, bucket) or region
        endpoint = session.client("s3", region_name=region).meta.endpoint_url
    return S3Store(
        bucket,
        endpoint=endpoint,
        region=_DEFAULT_REGION if region in (None, "aws-global") else region,
        client_options=client_options(endpoint) | _trust(s3.s3_verify),
        retry_config=retries,
        **_credentials(session),
    )


def region_of(client: Any, bucket: str) -> str | None:
    """Returns the region that a bucket is in, which S3 tells even those who may not read it."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        head = client.head_bucket(Bucket=bucket)["ResponseMetadata"]
    except ClientError as error:
        head = error.response["ResponseMetadata"]
    except BotoCoreError:  # no credentials, say: reading tells more of it than this
        return None
    region: str | None = head["HTTPHeaders"].get("x-amz-bucket-region")
    return region


def _credentials(session: Any) -> dict[str, Any]:
    """Returns what signs requests; without credentials nothing does: the data may be public."""
    credentials = session.get_credentials()
    if credentials is None:
        return {"skip_signature": True}

    def provide() -> dict[str, Any]:
        frozen = credentials.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(timezone.utc) + _CREDENTIALS_LAST,
        }

    return {"credential_provider": provide}


def _trust(verify: str | None) -> Any:
    """Returns which certificates are trusted beside the system's: those of a bundle."""
    bundle = verify or os.environ.get("AWS_CA_BUNDLE")
    if not bundle or not os.path.isfile(bundle):
        return {}
    with open(bundle, "rb") as stream:
        return {"root_certificate": stream.read()}
