# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Keys that people set on pods of any controller, so that these share devices.

One table for the reader of pods, the admission policies of the chart and the reference: the chart
states the same remedies, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ullage.api.labels import GROUP

MOST_PODS: Final = 4096
"""Pods of a gang, as of a TrainingJob."""
ANNOTATION_ADOPTED: Final = f"{GROUP}/adopted"
"""Version of the mutation by which admission prepared a pod."""
ADOPTED: Final = "1"
"""The version of today."""
ADOPTED_KIND: Final = "Pod"
"""Value of the label of the kind on an adopted pod."""
ANNOTATION_SCHEDULING: Final = f"{GROUP}/scheduling"
"""What the operator remembers of placing a pod that it adopted."""
CONDITION_PREFIX: Final = f"{GROUP}/"
"""Of the types of our conditions in a pod's status."""


class AdoptionKey(StrEnum):
    """Keys by their names within ``ullage.dev``."""

    SHARE = "share"
    DEVICES = "devices"
    GANG = "gang"
    GANG_SIZE = "gang-size"
    MAX_SLOWDOWN = "max-slowdown"
    LATENCY_MS = "latency-ms"
    PERCENTILE = "percentile"
    METRIC = "metric"
    MEMORY = "memory"
    LANE = "lane"
    LANE_SWITCHING = "lane-switching"
    ACCELERATORS = "accelerators"
    CLASS = "class"
    TENANT = "tenant"
    TRUST_DOMAIN = "trust-domain"
    PROFILE = "profile"
    CHECKPOINT = "checkpoint"
    CONTAINER = "container"
    INJECT = "inject"
    STRAGGLERS = "stragglers"

    @property
    def key(self) -> str:
        """The whole key."""
        return f"{GROUP}/{self.value}"


@dataclass(frozen=True, slots=True)
class Meaning:
    """Meaning of a key; ``remedy`` is what to write instead of a wrong value."""

    is_label: bool
    text: str
    remedy: str


LABELS: Final = (AdoptionKey.SHARE, AdoptionKey.DEVICES)
"""A pod with one of these is adopted."""

KEYS: Final[Mapping[AdoptionKey, Meaning]] = {
    AdoptionKey.SHARE: Meaning(
        True,
        "percent of one device, the least and the most",
        "write the least and the most percent of one device, as 30-60, or both in one, as 40",
    ),
    AdoptionKey.DEVICES: Meaning(
        True, "whole devices", "write a number of whole devices from 1 to 16"
    ),
    AdoptionKey.GANG: Meaning(
        True,
        "pods of one namespace that start together or not at all",
        "write a name, and the number of its pods as the annotation ullage.dev/gang-size",
    ),
    AdoptionKey.GANG_SIZE: Meaning(
        False,
        "pods of the gang",
        "write a number from 1 to 4096, and the name of the gang as the label ullage.dev/gang",
    ),
    AdoptionKey.MAX_SLOWDOWN: Meaning(
        False,
        "most slowdown by sharing, 1 = as fast as alone on the whole device",
        "write a decimal number of at least 1, as 1.3, and no ullage.dev/latency-ms beside it",
    ),
    AdoptionKey.LATENCY_MS: Meaning(
        False, "longest latency at the percentile", "write whole milliseconds from 1 to 3600000"
    ),
    AdoptionKey.PERCENTILE: Meaning(
        False,
        "part of the requests that is within the latency, default 99",
        "write a number above 0 and below 100, as 99.9, beside ullage.dev/latency-ms",
    ),
    AdoptionKey.METRIC: Meaning(
        False,
        "Prometheus histogram of the pod that measures the latency",
        "write the name of a Prometheus histogram, beside ullage.dev/latency-ms",
    ),
    AdoptionKey.MEMORY: Meaning(
        False,
        "device memory that the container may allocate",
        "write an amount from 1Mi to 1Pi, as 8Gi",
    ),
    AdoptionKey.LANE: Meaning(
        False,
        "device memory of a container that takes turns: what stays, and a step's peak above it",
        "write two amounts from 1Mi to 1Pi, as 2Gi+6Gi, beside ullage.dev/share and instead of"
        " ullage.dev/memory",
    ),
    AdoptionKey.LANE_SWITCHING: Meaning(
        False,
        "whether the memory that stays may leave the device while the container does nothing, the"
        " default is Cooperative: never",
        "write Checkpoint or Cooperative, beside ullage.dev/lane",
    ),
    AdoptionKey.ACCELERATORS: Meaning(
        False,
        "types of devices that will do, the default is any",
        "write at most 16 keys of accelerators, separated by commas, as nvidia-a100-sxm4-40gb",
    ),
    AdoptionKey.CLASS: Meaning(
        False,
        "class of work, by which its measurements are kept; a label will do as well",
        "write a name of at most 63 characters, or leave it out",
    ),
    AdoptionKey.TENANT: Meaning(
        False,
        "tenant that its time is booked to",
        "write the name of a tenant of the SchedulingPolicy",
    ),
    AdoptionKey.TRUST_DOMAIN: Meaning(
        False,
        "with whom it shares devices, the default is its namespace",
        "write the name of a trust domain that the SchedulingPolicy grants to this namespace",
    ),
    AdoptionKey.PROFILE: Meaning(
        False,
        "WorkloadProfile that says how it uses a device",
        "write the name of a WorkloadProfile of this namespace",
    ),
    AdoptionKey.CHECKPOINT: Meaning(
        False,
        "`true`: it saves its work on SIGTERM within its own grace and may be preempted for others",
        "write true where the container saves its work on SIGTERM, or leave it out",
    ),
    AdoptionKey.CONTAINER: Meaning(
        False,
        "container that gets the device, the default is the first",
        "write the name of one of spec.containers",
    ),
    AdoptionKey.INJECT: Meaning(
        True,
        "`Auto`: steps of torch programs are counted, timed and can be traced, without a change to"
        " the image; `Never`: also where the SchedulingPolicy says so for the namespace",
        "write Auto or Never",
    ),
    AdoptionKey.STRAGGLERS: Meaning(
        False,
        "`Observe`, the default, reports ranks that the others wait for; `Rebalance` also gives"
        " them smaller batches, in programs of DistributedDataParallel with the step hook;"
        " `Disabled` reports nothing",
        "write Disabled, Observe or Rebalance",
    ),
}


def asks_to_share(labels: Mapping[str, object]) -> bool:
    """Test for a pod that asks for devices by these labels."""
    return any(label.key in labels for label in LABELS)
