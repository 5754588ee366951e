# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Output of a command beside tables: JSON and YAML for scripts, names for pipes.

Statuses are those of the API, field by field.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import yaml

from ullage.cli.forms import OutputFormat
from ullage.cluster.codecs.status import status_to_wire
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord


def workloads_as(records: Sequence[WorkloadRecord], output: OutputFormat) -> str:
    """Workloads as text for scripts.

    Args:
        records: Workloads in the order of the output.
        output: Any form but a table.

    Raises:
        ValueError: the form is a table.
    """
    if output is OutputFormat.NAME:
        return "".join(f"{record.kind.value.lower()}/{record.ref.name}\n" for record in records)
    body = {"items": [_body(record) for record in records]}
    if output is OutputFormat.JSON:
        return json.dumps(body, indent=2, allow_nan=False) + "\n"
    if output is OutputFormat.YAML:
        return yaml.safe_dump(body, sort_keys=False, allow_unicode=True)
    raise ValueError("a table is no text for scripts")


def _body(workload: WorkloadRecord) -> dict[str, object]:
    ref, kind = workload.ref, workload.kind
    # pods are printed like jobs: with their nodes, devices and end
    form = WorkloadKind.TRAINING_JOB if kind is WorkloadKind.POD else kind
    return {
        "kind": kind.value,
        "metadata": {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid},
        "status": status_to_wire(form, workload.status),
    }
