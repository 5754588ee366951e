# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Names one device of the cluster."""

from __future__ import annotations

from typing import NamedTuple


class DeviceRef(NamedTuple):
    """A device: the name of its node and its uuid."""

    node: str
    gpu: str

    def __str__(self) -> str:
        """Text for users: ``node/uuid``."""
        return f"{self.node}/{self.gpu}"
