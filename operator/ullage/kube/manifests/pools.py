# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The apply body of a CapacityPool's status: every field that the operator owns on it. No I/O."""

from __future__ import annotations

from ullage.api.contract import API_VERSION
from ullage.cluster.codecs.pool import pool_status_to_wire
from ullage.scheduling.model.plan import SetPoolStatus


def pool_status_body(action: SetPoolStatus) -> dict[str, object]:
    """The whole status, for server-side apply to ``/status``; the uid fences a new object."""
    return {
        "apiVersion": API_VERSION,
        "kind": action.target.kind,
        "metadata": {"name": action.target.name, "uid": action.target.uid},
        "status": pool_status_to_wire(action.status),
    }
