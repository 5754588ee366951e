# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ids of reservations: slices of a pod that does not exist yet.

The API server chooses a pod's uid when it creates it, but slices are written before. Until the pod
exists, they bear the id of their reservation in place of the uid; the pod bears it as an
annotation. No uid of the API server has this form. The id proves which pod of which workload it is
for: without the right one, slices are no reservation.
"""

from __future__ import annotations

import hashlib
from typing import Final

_PREFIX: Final = "reservation-"


def reservation_id(owner_uid: str, template_hash: str, pod: str, moment: float) -> str:
    """Id of a new reservation.

    Args:
        owner_uid: uid of the workload.
        template_hash: Version of the template that the pod is to be made from.
        pod: Name of the pod.
        moment: Time of the decision, seconds since the epoch; each attempt has an id of its own.
    """
    return _id(owner_uid, template_hash, pod, f"{round(moment * 1e6):x}")


def is_reservation(pod_uid: str) -> bool:
    """True if a slice bears the id of a reservation in place of a pod's uid."""
    return pod_uid.startswith(_PREFIX)


def is_reserved_for(reservation: str, owner_uid: str, template_hash: str, pod: str) -> bool:
    """True if a reservation was made for this pod, in this version."""
    moment = reservation.rpartition("-")[2]
    return reservation == _id(owner_uid, template_hash, pod, moment)


def _id(owner_uid: str, template_hash: str, pod: str, moment: str) -> str:
    proof = hashlib.sha256(f"{owner_uid}/{template_hash}/{pod}/{moment}".encode()).hexdigest()[:20]
    return f"{_PREFIX}{proof}-{moment}"
