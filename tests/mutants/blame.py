# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of blame: who is suspected of a fault of a device, who is charged, what follows."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

INVENTORY: Final = "operator/ullage/scheduling/inventory"

BLAME: Final = ("tests/unit/scheduling/test_a_faulting_class_is_isolated.py",)
SUSPECTS: Final = ("tests/unit/node/core/test_faults_name_their_suspects.py",)

MUTANTS: Final = (
    Mutant(
        "only the fault of a program is charged to a class",
        f"{INVENTORY}/device_faults.py",
        "if xid_of(fault.xid).cause is not Cause.APPLICATION:",
        "if xid_of(fault.xid).cause.unhealthy:",
        BLAME,
    ),
    Mutant(
        "with pods of two classes no class is certain",
        f"{INVENTORY}/device_faults.py",
        "for suspect in fault.suspects}",
        "for suspect in fault.suspects[:1]}",
        BLAME,
    ),
    Mutant(
        "a class of another namespace is another class",
        f"{INVENTORY}/device_faults.py",
        "classes = {(suspect.namespace, suspect.workload_class)",
        "classes = {(fault.suspects[0].namespace, suspect.workload_class)",
        BLAME,
    ),
    Mutant(
        "a pod that is known on another node was not there",
        f"{INVENTORY}/device_faults.py",
        'and pod.node in ("", node.name)',
        "",
        BLAME,
    ),
    Mutant(
        "an isolation lasts until its hours are over",
        f"{INVENTORY}/device_faults.py",
        "if newest is not None and now < newest.at_s + lasts_s:",
        "if newest is not None and now < newest.at_s + lasts_s / 2:",
        BLAME,
    ),
    Mutant(
        "only faults up to the time that was cleared are cleared",
        f"{INVENTORY}/device_faults.py",
        "if fault.at_s > since]",
        "if not since]",
        BLAME,
    ),
    Mutant(
        "a class that is isolated shares with itself alone",
        f"{INVENTORY}/trust_domains.py",
        "{_APART}{namespace}/{workload.workload_class}",
        "{_APART}{namespace}/",
        BLAME,
    ),
    Mutant(
        "a fault is counted once",
        f"{INVENTORY}/device_faults.py",
        "if (at, fault.id) in counted or",
        "if",
        BLAME,
    ),
    Mutant(
        "faults that a profile lists no more are counted all the same",
        f"{INVENTORY}/device_faults.py",
        "or fault.at_s <= counted_to.get(at, 0.0):",
        "or fault.at_s < 0:",
        BLAME,
    ),
    Mutant(
        "a pod that left before all events were read is suspected",
        "deviceplugin/ullage_node/faults.py",
        "if stay.until >= reading.settled_at",
        "if stay.until == math.inf",
        SUSPECTS,
    ),
    Mutant(
        "a flood of one device hides no fault of another",
        "deviceplugin/ullage_node/faults.py",
        "if fault.gpu == many)",
        "if fault.gpu)",
        SUSPECTS,
    ),
)
