# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of quota: what a tenant may hold, borrow and take back, and who counts against it."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

USAGE: Final = "operator/ullage/engines/quota/usage.py"
PLACEMENT: Final = "operator/ullage/scheduling/placement"
ARITHMETIC: Final = ("tests/unit/engines/quota/test_quota_is_lent_and_never_exceeded.py",)
KEPT: Final = ("tests/unit/scheduling/test_tenants_keep_their_quota.py",)
TOLD: Final = ("tests/unit/scheduling/test_a_policy_tells_what_tenants_hold.py",)
STATUS: Final = "operator/ullage/scheduling/status/quota_status.py"
TURNS: Final = "operator/ullage/scheduling/timeslicing"
ORDERED: Final = ("tests/unit/scheduling/test_nodes_are_ordered.py",)

MUTANTS: Final = (
    Mutant(
        "a tenant borrows no more than its limit",
        USAGE,
        "room = min(room, limits.nominal + limits.borrowing - used)",
        "room = min(room, limits.nominal + limits.borrowing)",
        ARITHMETIC,
    ),
    Mutant(
        "what is never lent is no part of the pool that others use up",
        USAGE,
        "more = max(0, after - guaranteed) - max(0, before - guaranteed)",
        "more = after - before",
        ARITHMETIC,
    ),
    Mutant(
        "only who borrows gives back",
        USAGE,
        "            and self.is_borrowing(victim, kind)\n",
        "",
        ARITHMETIC,
    ),
    Mutant(
        "only who stays inside its nominal quota takes back",
        USAGE,
        "            and percent <= self.nominal_left(tenant, kind)\n",
        "",
        KEPT,
    ),
    Mutant(
        "no cohort pays for another",
        USAGE,
        "            and owner.cohort == other.cohort\n",
        "",
        KEPT,
    ),
    Mutant(
        "what a tenant holds inside its quota leaves for no other tenant",
        USAGE,
        "return bool(of_one) or not self.is_borrowing(victim, kind)",
        "return False",
        KEPT,
    ),
    Mutant(
        "a range of shares does not borrow to get more",
        f"{PLACEMENT}/allowance.py",
        "inside = min(nominal, room) if nominal >= each * members else room",
        "inside = room",
        KEPT,
    ),
    Mutant(
        "those inside their nominal quota are served first",
        f"{PLACEMENT}/queue.py",
        "                self._borrows(attempt),\n",
        "",
        KEPT,
    ),
    Mutant(
        "no more is taken back than was borrowed",
        f"{PLACEMENT}/victim_selection.py",
        "usage.add(number, quota.kinds[site], -occupant.tenant.percent)",
        "pass",
        KEPT,
    ),
    Mutant(
        "where the youngest borrower is in the wrong place another one leaves",
        f"{PLACEMENT}/victim_selection.py",
        "for first in useful[:_MOST_WAYS] if leaving else ():",
        "for first in ():",
        KEPT,
    ),
    Mutant(
        "to name no tenant is no way around the quota of a namespace",
        "operator/ullage/scheduling/inventory/tenant_bindings.py",
        "return default_tenant(policy, workload.ref.namespace)",
        'return ""',
        KEPT,
    ),
    Mutant(
        "no node is ordered that the quota would keep empty",
        "operator/ullage/scheduling/capacity/node_requests.py",
        "fits = min(members, max(0, room // each - placed))",
        "fits = members",
        ORDERED,
    ),
    Mutant(
        "a round is planned within quota",
        f"{TURNS}/rounds.py",
        "quota = turn_quota(contenders, tools.occupancy)",
        "quota = None",
        KEPT,
    ),
    Mutant(
        "a gang that quota keeps out is waited for no more",
        f"{TURNS}/plan.py",
        "        and (quota is None or quota.could_have(uid))\n",
        "",
        KEPT,
    ),
    Mutant(
        "what tenants hold is written only when it changes",
        STATUS,
        "if _content(before) == _content(status):",
        "if False:",
        TOLD,
    ),
    Mutant(
        "what tenants hold is not written at every change",
        STATUS,
        "0.0 <= now - before.time < QUOTA_WRITE_S",
        "False",
        TOLD,
    ),
    Mutant(
        "a name that is not open to a namespace takes no one's quota",
        "operator/ullage/scheduling/inventory/tenant_bindings.py",
        "if workload.tenant and is_bound(policy, workload):",
        "if workload.tenant:",
        TOLD,
    ),
)
