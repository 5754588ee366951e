# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the API server and our credentials: a kubeconfig if named, else the pod's service account.

Explicit on purpose: the client's own ``load_config`` would prefer a kubeconfig in the home
directory over the service account. Never logs a token.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import incluster_config

from ullage.kube.times import EXEC_REFRESH_S
from ullage.process.threads import in_thread

_config: Any = config
_incluster: Any = incluster_config
"""Both are untyped."""


class CredentialsError(Exception):
    """No usable credentials; the text names what is missing and where."""


@dataclass(slots=True, kw_only=True)
class Credentials:
    """The client's configuration and the renewal of its credentials."""

    configuration: Any
    """``kubernetes.aio.client.Configuration``; its token changes in place."""
    source: str
    """Human-readable source of the credentials."""
    renew: Callable[[], Awaitable[None]]
    """Read the token again now, at any age."""
    keep_fresh: Callable[[], Awaitable[None]] | None = None
    """Runs until cancelled where the source does not renew tokens itself."""

    @property
    def token(self) -> str:
        """The bearer token in use, to see whether a renewal changed it."""
        return str(self.configuration.api_key.get("BearerToken", ""))


def in_cluster(
    *,
    environment: Mapping[str, str] | None = None,
    token_file: str = incluster_config.SERVICE_TOKEN_FILENAME,
    ca_file: str = incluster_config.SERVICE_CERT_FILENAME,
) -> Credentials:
    """The pod's service account; its token is read again at most once a minute.

    Raises:
        CredentialsError: this process is not in a pod with a service account.
    """
    configuration = Configuration()
    loader = _incluster.InClusterConfigLoader(
        token_filename=token_file, cert_filename=ca_file, environ=environment or os.environ
    )
    try:
        loader.load_and_set(configuration)
    except config.ConfigException as error:
        raise CredentialsError(
            f"no service account in this pod ({error}); outside a cluster name a kubeconfig "
            "with ULLAGE_KUBECONFIG or --kubeconfig"
        ) from error

    async def renew() -> None:
        await in_thread(loader.load_and_set, configuration)

    return Credentials(configuration=configuration, source="service account", renew=renew)


async def from_kubeconfig(path: Path, *, context: str = "") -> Credentials:
    """One context of a kubeconfig file; the file is never written.

    Raises:
        CredentialsError: the file is missing or does not describe a usable context.
    """
    configuration = Configuration()

    async def load() -> Any:
        return await _config.load_kube_config(
            config_file=str(path),
            context=context or None,
            client_configuration=configuration,
            persist_config=False,
        )

    try:
        loader = await load()
    except config.ConfigException as error:
        raise CredentialsError(f"kubeconfig {path}: {error}") from error

    async def renew() -> None:
        await load()

    async def keep_fresh() -> None:
        await _config.refresh_token(loader, configuration, interval=EXEC_REFRESH_S)

    return Credentials(
        configuration=configuration,
        source=f"kubeconfig {path}",
        renew=renew,
        keep_fresh=keep_fresh,
    )


async def find_credentials(kubeconfig: str, context: str = "") -> Credentials:
    """The named kubeconfig, or with an empty name the pod's service account.

    Raises:
        CredentialsError: neither is usable.
    """
    return await from_kubeconfig(Path(kubeconfig), context=context) if kubeconfig else in_cluster()


def namespace_of(kubeconfig: str, context: str = "") -> str:
    """The namespace of a context, ``default`` where it names none.

    Args:
        kubeconfig: Path of the file, or several separated by colons.
        context: Name of a context; empty = the current one.

    Raises:
        CredentialsError: the file is missing or has no such context.
    """
    try:
        contexts, current = _config.kube_config.list_kube_config_contexts(kubeconfig)
    except config.ConfigException as error:
        raise CredentialsError(f"kubeconfig {kubeconfig}: {error}") from error
    named = {entry["name"]: entry for entry in (*contexts, current)}
    chosen = named.get(context) if context else current
    if chosen is None:
        raise CredentialsError(
            f"kubeconfig {kubeconfig}: no context {context!r}; it has {', '.join(sorted(named))}"
        )
    return str(chosen["context"].get("namespace") or "default")
