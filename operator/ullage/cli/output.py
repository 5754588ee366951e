# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a command prints beside tables: JSON and YAML for scripts, names for pipes.

Statuses are those of the API, field by field.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from enum import StrEnum

import yaml
from rich.console import Console

from ullage.cluster.codecs.status import status_to_wire
from ullage.cluster.records.snapshot import WorkloadRecord

_UNFOLDED = 4096
"""Width without a terminal: each row of a table is one line."""


class Output(StrEnum):
    """Form of an answer."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"

    @property
    def for_people(self) -> bool:
        """Whether it is a table."""
        return self in (Output.TABLE, Output.WIDE)


def console_for(stream: str = "stdout") -> Console:
    """A console that folds lines on a terminal, and not in a pipe or a file."""
    error = stream == "stderr"
    terminal = (sys.stderr if error else sys.stdout).isatty()
    width = None if terminal or os.environ.get("COLUMNS") else _UNFOLDED
    return Console(stderr=error, highlight=False, width=width)


def workloads_as(found: Sequence[WorkloadRecord], output: Output) -> str:
    """Workloads as text for scripts.

    Args:
        found: in the order in which they are told.
        output: any form but a table.

    Raises:
        ValueError: a table was asked for.
    """
    if output is Output.NAME:
        return "".join(f"{one.kind.value.lower()}/{one.ref.name}\n" for one in found)
    body = {"items": [_body(one) for one in found]}
    if output is Output.JSON:
        return json.dumps(body, indent=2, allow_nan=False) + "\n"
    if output is Output.YAML:
        return yaml.safe_dump(body, sort_keys=False, allow_unicode=True)
    raise ValueError("a table is no text for scripts")


def _body(workload: WorkloadRecord) -> dict[str, object]:
    ref = workload.ref
    return {
        "kind": workload.kind.value,
        "metadata": {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid},
        "status": status_to_wire(workload.kind, workload.status),
    }
