# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What was measured while a tenant ran is told to its node, once.

A slice says what slowdown its objective allows, and a node writes that into the rows it tells.
Work that started unmeasured has a slice without it. Size and place never change here.
"""

from __future__ import annotations

from dataclasses import replace

from ullage.decide.classes import Classes
from ullage.decide.ledger import Ledger
from ullage.decide.slices import said_of
from ullage.decide.view import View
from ullage.state.records import PodStage


def restate(view: View, classes: Classes, ledger: Ledger) -> None:
    """Enter slices of running services anew whose objective has become a slowdown since.

    They carry this leader's epoch: a node takes no change of an older one.
    """
    snapshot, ground = view.snapshot, classes.ground
    for node, record in snapshot.gpu_nodes.items():
        for wanted in record.desired:
            if wanted.slo is None or wanted.max_slowdown_percent or wanted.probation:
                continue
            site = ground.site_index.get((node, wanted.gpu))
            pod = snapshot.pods.get(wanted.key.pod_uid)
            if site is None or pod is None or pod.deleting or pod.stage is not PodStage.RUNNING:
                continue
            owner = snapshot.workloads.get(pod.owner.uid)
            if owner is None or ledger.dropped(node, wanted.key):
                continue
            said = said_of(owner, classes.of(owner), ground.model.item(site))
            if said.max_slowdown_percent:
                ledger.add(
                    node,
                    replace(
                        wanted,
                        max_slowdown_percent=said.max_slowdown_percent,
                        solo_step_micros=said.solo_step_micros,
                        epoch=view.settings.epoch,
                    ),
                )
