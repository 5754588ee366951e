# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Names of the operator's objects: one for each job and part, permanently fixed; labels of nodes.

A fixed name makes creation idempotent, and records it: a pod with any other name is not the
operator's, whatever its labels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

MAX_RANK: Final = 4095
"""Highest rank of a TrainingJob."""
HOSTNAME: Final = "kubernetes.io/hostname"
"""Label of a node: its name, used in pods' selectors."""
_DIGITS: Final = 6
"""Maximum digits of a number in a name; no job has more pods than that."""


def pod_name(job: str, rank: int) -> str:
    """Name of a member."""
    return f"{job}-{rank}"


def workers_service(job: str) -> str:
    """Name of the headless Service of a gang."""
    return f"{job}-workers"


def coordinator_name(job: str) -> str:
    """Name of the coordinator pod of a job in tiers, and of its Service."""
    return f"{job}-lead"


def router_name(service: str) -> str:
    """Name of the Deployment that routes the requests of a service."""
    return f"{service}-router"


def replicas_service(service: str) -> str:
    """Name of the headless Service by which a router finds the replicas."""
    return f"{service}-replicas"


def order_name(job: str, number: int) -> str:
    """Name of a placeholder pod that requests a node for a job."""
    return f"{job}-order-{number}"


def is_order_name(job: str, name: str) -> bool:
    """True when a placeholder pod of the job can have this name."""
    prefix = f"{job}-order-"
    return name.startswith(prefix) and number_of(name.removeprefix(prefix)) >= 0


def trial_name(tuning: str, trial: int) -> str:
    """Name of a trial of a TuningJob."""
    return f"{tuning}-t{trial:04d}"


@lru_cache(maxsize=4096)
def trial_run_name(tuning: str, trial: int, until_epoch: int) -> str:
    """Name of the TrainingJob that runs a trial up to an epoch."""
    return f"{trial_name(tuning, trial)}-e{until_epoch}"


def number_of(text: str) -> int:
    """Parse a whole number in the operator's form, without sign or leading zeros; -1 = invalid."""
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS:
        return -1
    number = int(text)
    return number if str(number) == text else -1
