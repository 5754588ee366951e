# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The product's own client, pointed at a fake server."""

from __future__ import annotations

import os
from unittest.mock import patch

from kubernetes.aio.client import Configuration

from ullage.kube.client import K8sCluster
from ullage.kube.credentials import Credentials
from ullage.kube.transport import TransportLimits

QUICK = TransportLimits(
    read_s=30.0, write_s=20.0, connect_s=20.0, watch_grace_s=1.0, retry_first_s=0.01
)
"""Short pauses, so that a test of retries takes milliseconds; patience for a busy machine."""


def anonymous(url: str) -> Credentials:
    """A server that asks no one who they are, over plain HTTP; for local use and tests."""
    configuration = Configuration(host=url)

    async def renew() -> None:
        return None

    return Credentials(configuration=configuration, source=f"no credentials, {url}", renew=renew)


def make_cluster(
    url: str,
    *,
    token: str = "",
    limits: TransportLimits = QUICK,
    user_agent: str = "ullage-operator",
) -> K8sCluster:
    """The real adapter against this address; use as ``async with`` or close it."""
    credentials = anonymous(url)
    if token:
        credentials.configuration.api_key["BearerToken"] = f"Bearer {token}"
    # It speaks plain HTTP: to read the machine's certificates would take longer than most tests.
    with patch.dict(os.environ, SSL_CERT_FILE=os.devnull, SSL_CERT_DIR=os.devnull):
        return K8sCluster(credentials, limits=limits, user_agent=user_agent, seed=1)
