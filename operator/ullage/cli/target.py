# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The cluster, the user and the namespace of a command, as in kubectl."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ullage.kube.client import K8sCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTarget:
    """Options of every command."""

    kubeconfig: str
    """Path of a kubeconfig, or several separated by colons, as in ``KUBECONFIG``."""
    context: str = ""
    """Name of a context in it; empty = the current one."""
    namespace: str = ""
    """Namespace named before the command."""

    def namespace_or(self, stated: str) -> str:
        """The namespace of the command, else the one before it, else the context's.

        Raises:
            CredentialsError: none is named, and the kubeconfig cannot be read.
        """
        from ullage.kube.credentials import namespace_of

        return stated or self.namespace or namespace_of(self.kubeconfig, self.context)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[K8sCluster]:
        """The API server, with the user's own credentials.

        Raises:
            CredentialsError: no usable credentials.
            ApiError: the API server refused or did not answer.
        """
        from ullage.kube.client import K8sCluster
        from ullage.kube.credentials import find_credentials

        credentials = await find_credentials(self.kubeconfig, self.context)
        async with K8sCluster(credentials, user_agent="kubectl-ullage") as api:
            yield api
