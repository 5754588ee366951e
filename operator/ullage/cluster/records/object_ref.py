# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The name of an object."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """Names one object of one kind."""

    kind: str
    namespace: str
    name: str
    uid: str
