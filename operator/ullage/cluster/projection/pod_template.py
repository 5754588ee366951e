# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Data that the writer needs beside an action: raw templates, identities of children.

Templates are stored as compact JSON text, not as nested dicts: ten thousand of them must fit the
operator's memory. They are never sent to the decision process.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from ullage.api.podtemplate import Runtime
from ullage.api.trainingjob import TierTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """A workload's pod template and its additions."""

    template_json: str
    """The raw template as canonical JSON."""
    read: object = field(default=None, compare=False, repr=False)
    """The parsed template: kept while a blueprint refers to it."""
    generation: int = field(default=0, compare=False)
    """Generation of the workload at the time of reading."""
    template_hash: str
    replicas: int
    slots: int
    """Slots of the device container = devices of a member."""
    grace_s: int = 0
    """Minimum termination grace period, seconds (from ``spec.checkpoint``); 0 = the template's."""
    runtime: Runtime = field(default_factory=Runtime)
    """Additions to the device container."""
    rebalances: bool = False
    """Its programs may divide batches unevenly."""
    tiers: TierTerms | None = None
    """Tier settings of a job in tiers."""
    least: int = 0
    """Minimum members of an elastic gang; 0 = not elastic."""

    def template(self) -> dict[str, object]:
        """A fresh copy of the raw template, which the caller may change."""
        decoded = json.loads(self.template_json)
        return decoded if isinstance(decoded, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Identity of an applied object in the watch cache; the owner is its controller."""

    uid: str
    generation: int
    owner_uid: str = ""


def canonical_json(value: object) -> str:
    """JSON text that is the same for equal values: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def template_hash(template_json: str, slots: int) -> str:
    """Name of a version of a template: 12 hexadecimal digits of SHA-256.

    The number of slots is part of it, because pods made from one template with another number of
    devices differ. Source: derived.

    Args:
        template_json: The template as canonical JSON.
        slots: Slots of the device container.
    """
    return hashlib.sha256(f"{slots} {template_json}".encode()).hexdigest()[:12]
