# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One hash of all that a decision saw, so that two verdicts can be told to answer one question.

Records are laid out as plain tuples first: printing the records themselves costs a quarter of a
decision. It must never leave a field out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Final

from ullage.engines.admission.calibration import Threshold
from ullage.engines.admission.filters import Device, Newcomer, Resident
from ullage.engines.admission.records import ClassProfile, Fingerprint, Proposal, ShareCurve, Tenant
from ullage.engines.admission.verdict import Basis, RiskSettings


def _values(kind: type, *records: str) -> Callable[[object], tuple[object, ...]]:
    """Reads all fields of a kind but those that are records themselves."""
    return attrgetter(*(one.name for one in fields(kind) if one.name not in records))


_DEVICE: Final = _values(Device, "residents")
_RESIDENT: Final = _values(Resident, "tenant")
_NEWCOMER: Final = _values(Newcomer, "tenant")
_PROPOSAL: Final = _values(Proposal, "residents", "newcomer")
_TENANT: Final = _values(Tenant, "profile")
_PROFILE: Final = _values(ClassProfile, "fingerprint", "curve")
_FINGERPRINT: Final = _values(Fingerprint)
_CURVE: Final = _values(ShareCurve)
_SETTINGS: Final = _values(RiskSettings)
_THRESHOLD: Final = _values(Threshold)


def inputs_hash(device: Device, newcomer: Newcomer, basis: Basis) -> str:
    """Hash of everything a decision sees but the model itself, whose version stands beside.

    Args:
        device: The device with those who are there.
        newcomer: Who asks.
        basis: Settings, thresholds and arrivals that the decision rests on.
    """
    residents = [(_RESIDENT(one), _tenant(one.tenant)) for one in device.residents]
    return _hash((_DEVICE(device), residents, _newcomer(newcomer), *_basis(basis)))


def proposal_hash(proposal: Proposal, basis: Basis) -> str:
    """Hash of everything a prediction sees but the model itself.

    Args:
        proposal: The newcomer beside those who are there.
        basis: Settings, thresholds and arrivals that the prediction rests on.
    """
    tenants = [_tenant(one) for one in (*proposal.residents, proposal.newcomer)]
    return _hash((_PROPOSAL(proposal), tenants, *_basis(basis)))


def _hash(seen: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]


def _basis(basis: Basis) -> tuple[object, ...]:
    return (
        _SETTINGS(basis.settings),
        [(one.weight, _newcomer(one.newcomer)) for one in basis.arrivals],
        sorted((str(group), str(band), _THRESHOLD(one))
               for (group, band), one in basis.thresholds.items()),
    )  # fmt: skip


def _newcomer(one: Newcomer) -> tuple[object, ...]:
    return _NEWCOMER(one), _tenant(one.tenant)


def _tenant(one: Tenant) -> tuple[object, ...]:
    return _TENANT(one), _profile(one.profile) if one.profile is not None else None


def _profile(one: ClassProfile) -> tuple[object, ...]:
    curve = _CURVE(one.curve) if one.curve is not None else None
    return _PROFILE(one), _FINGERPRINT(one.fingerprint), curve
