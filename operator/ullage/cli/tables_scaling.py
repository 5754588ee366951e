# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Renders the number of replicas of a service, and its reason."""

from __future__ import annotations

from rich.table import Table

from ullage.api.reasons import Standing
from ullage.cli.tables import facts
from ullage.cluster.records.spec_fields import ReplicaBounds
from ullage.cluster.records.status import ChosenShare, ReplicaChoice, ScalingRecord


def scaling(bounds: ReplicaBounds, record: ScalingRecord) -> Table:
    """Load, planned load, chosen number, and the prediction for one replica less."""
    helps = Standing.GOOD not in record.reason.standing
    fewer = record.runner_up
    rows = {
        "replicas": f"{_choice(record.chosen)}, {bounds.min_replicas} to {bounds.max_replicas}",
        "": f"{record.reason.value}: {record.message}",
        "load": f"{record.load} requests/s, {record.forecast} planned for" if record.load else "",
        "latency": f"{record.predicted_ms} ms predicted" if record.predicted_ms else "",
        "one less": f"{_choice(fewer)}: {_latency(fewer)}" if fewer is not None else "",
        "share": _share(record.share) if record.share is not None else "",
        "launch": f"{record.launch_seconds} s" if record.launch_seconds else "",
        "what helps": record.reason.what_to_do if helps else "",
    }
    return facts(rows)


def _choice(choice: ReplicaChoice) -> str:
    if not choice.percent:
        return str(choice.replicas)
    return f"{choice.replicas} of {choice.percent}% {choice.accelerator}".rstrip()


def _share(share: ChosenShare) -> str:
    if not share.percent:
        return "the chosen one found no room: what fits of the spec"
    return f"{share.percent}% {share.accelerator}".rstrip() + " chosen for the objective"


def _latency(choice: ReplicaChoice) -> str:
    if not choice.predicted_ms:
        return "more would come than is served"
    return f"{choice.predicted_ms} ms predicted"
