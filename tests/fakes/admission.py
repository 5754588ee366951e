# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Devices, tenants and a forecaster that is easy to foretell, for tests of admission."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from ullage.engines.admission.calibration import Band, Threshold
from ullage.engines.admission.decision import predict
from ullage.engines.admission.filters import (
    CheckedDevice,
    Newcomer,
    Resident,
    figures_of,
    first_refusal,
    request_for,
)
from ullage.engines.admission.limits import ceiling
from ullage.engines.admission.query import AdmissionQuery
from ullage.engines.admission.records import Forecast, Group, Rung, Tenant
from ullage.engines.admission.verdict import Basis, Verdict


@dataclass(slots=True)
class CrowdForecaster:
    """Own share first, then a toll for every percent that the others hold.

    ``s_i = max(1, use_i / p_i) * (1 + toll * sum of the others' shares)``.
    """

    toll: float = 0.5
    sd: float = 0.05
    group: Group = Group.KNOWN
    asked: int = 0

    def forecast(self, accelerator: str, tenants: Sequence[Tenant]) -> Forecast:
        self.asked += 1
        total = sum([one.percent for one in tenants])
        means = [
            math.log(
                max(1.0, 100 * one.utilisation / one.percent)
                * (1 + self.toll * (total - one.percent) / 100)
            )
            for one in tenants
        ]
        return Forecast(
            mean=tuple(means),
            sd=(self.sd if len(tenants) > 1 else 0.0,) * len(tenants),
            group=self.group,
            rung=Rung.GP,
            version=7,
        )


def certified(value: float = 1.0) -> dict[tuple[Group, Band], Threshold]:
    """One and the same threshold everywhere."""
    one = Threshold(value=value, rows=100, admitted=60, violations=1)
    return dict.fromkeys(product(Group, Band), one)


def uncertified(rows: int = 11) -> dict[tuple[Group, Band], Threshold]:
    """No threshold anywhere, for lack of rows."""
    one = Threshold(value=math.inf, rows=rows, admitted=0, violations=0, needed=32)
    return dict.fromkeys(product(Group, Band), one)


def tenant(
    name: str, percent: int = 50, *, slo: float | None = 1.5, use: float = 0.3, weight: float = 1.0
) -> Tenant:
    return Tenant(name=name, percent=percent, utilisation=use, max_slowdown=slo, weight=weight)


def resident(
    one: Tenant, *, memory_mib: int | None = 1000, enforced: bool | None = True
) -> Resident:
    return Resident(tenant=one, memory_mib=memory_mib, enforced=enforced, trust_domain="team")


def newcomer(
    one: Tenant, least: int = 10, most: int = 60, *, memory_mib: int = 1000, contexts: int = 1
) -> Newcomer:
    return Newcomer(
        tenant=one,
        min_percent=least,
        max_percent=most,
        memory_mib=memory_mib,
        contexts=contexts,
        trust_domain="team",
    )


def device(
    *residents: Resident, memory_mib: int = 16_000, percent_limit: int = 100
) -> CheckedDevice:
    return CheckedDevice(
        uuid="GPU-1",
        memory_mib=memory_mib,
        contexts=44,
        context_overhead_mib=512,
        percent_limit=percent_limit,
        residents=residents,
    )


def query(where: CheckedDevice, who: Newcomer) -> AdmissionQuery:
    """The query about a newcomer to a device, with the shares that the hard limits leave."""
    return AdmissionQuery(
        accelerator="v100",
        residents=tuple(resident.tenant for resident in where.residents),
        newcomer=who.tenant,
        least=who.min_percent,
        most=ceiling(figures_of(where, who), request_for(who, where)),
        percent_limit=where.percent_limit,
        domain=who.trust_domain,
    )


def admit(where: CheckedDevice, who: Newcomer, basis: Basis) -> Verdict:
    """The verdict about a newcomer that breaks no hard limit."""
    assert first_refusal(who, where) is None
    return predict(query(where, who), basis)
