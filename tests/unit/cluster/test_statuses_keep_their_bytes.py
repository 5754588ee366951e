# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Records that stand on clusters or travel between processes keep their bytes, both ways.

Each file of ``tests/data/statuses`` holds a full record as it is stored, what it reads as, and for
each of its fields what is said when a value of another type stands there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ullage.api.devices import ObservedDevice
from ullage.api.interruptions import Interruption
from ullage.api.observations import Observation
from ullage.api.readers import WireError
from ullage.api.slices import DesiredSlice, ObservedSlice
from ullage.cluster.codecs import profile, status
from ullage.cluster.codecs.objects import within
from ullage.cluster.records.profile import OpTable
from ullage.cluster.records.workload import WorkloadKind
from ullage_node.mps.records import MpsLimits, MpsReport, ServerOrder

FOLDER = Path(__file__).parents[2] / "data" / "statuses"
CONTRACT = (DesiredSlice, ObservedSlice, ObservedDevice, Observation, Interruption)
SOCKET = (MpsReport, ServerOrder, MpsLimits)
JOB, SERVICE = WorkloadKind.TRAINING_JOB, WorkloadKind.INFERENCE_DEPLOYMENT


def op_table(raw: Any) -> OpTable:
    with within("opTable"):
        return profile.OP_TABLE.read(raw)


CODECS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "trainingjob": (partial(status.status_from_wire, JOB), partial(status.status_to_wire, JOB)),
    "inferencedeployment": (
        partial(status.status_from_wire, SERVICE),
        partial(status.status_to_wire, SERVICE),
    ),
    "solve": (status.solve_from_wire, status.solve_to_wire),
    "capacitypool": (status.pool_status_from_wire, status.pool_status_to_wire),
    "workloadprofile": (profile.profile_status_from_wire, profile.profile_status_to_wire),
    "devicemodel": (profile.device_model_from_wire, profile.device_model_to_wire),
    "solorow": (profile.solo_from_wire, profile.solo_to_wire),
    "steprow": (profile.step_from_wire, profile.step_to_wire),
    "optable": (op_table, profile.op_table_to_wire),
    **{one.__name__.lower(): (one.from_wire, one.to_wire) for one in (*CONTRACT, *SOCKET)},
}


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, indent=1, default=dict)


def wrong(value: object) -> object:
    """A value of another type."""
    return [7] if isinstance(value, dict) else {"a": 1} if isinstance(value, list) else [value]


def faulty(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The status once for each of its fields, with a value of another type there."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, item in items:
        here = f"{path}.{name}" if path else str(name)
        copy = dict(value) if isinstance(value, dict) else list(value)
        copy[name] = wrong(item)
        yield here, copy
        if isinstance(item, dict | list):
            for below, inner in faulty(item, here):
                copy = dict(value) if isinstance(value, dict) else list(value)
                copy[name] = inner
                yield below, copy


def said(read: Callable[[Any], Any], stored: object) -> str:
    """What reading complains of; empty = nothing."""
    try:
        read(stored)
    except WireError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", CODECS)
def test_a_stored_status_reads_as_before(name: str) -> None:
    golden = json.loads((FOLDER / f"{name}.json").read_text())
    assert canonical(asdict(CODECS[name][0](golden["stored"]))) == canonical(golden["record"])


@pytest.mark.parametrize("name", CODECS)
def test_a_status_is_written_byte_for_byte_as_before(name: str) -> None:
    golden = json.loads((FOLDER / f"{name}.json").read_text())
    read, write = CODECS[name]
    assert canonical(write(read(golden["stored"]))) == canonical(golden["stored"])


@pytest.mark.parametrize("name", ["trainingjob", "inferencedeployment"])
def test_a_status_from_before_images_were_counted_reads_and_keeps_its_bytes(name: str) -> None:
    golden = json.loads((FOLDER / f"{name}.json").read_text())
    stored, (read, write) = golden["stored"], CODECS[name]
    del stored["scheduling"]["pullFailures"], stored["scheduling"]["pullAgainAt"]
    golden["record"]["scheduling"] |= {"pull_failures": 0, "pull_again_at": 0.0}
    assert canonical(asdict(read(stored))) == canonical(golden["record"])
    assert canonical(write(read(stored))) == canonical(stored)


@pytest.mark.parametrize("name", CODECS)
def test_a_value_of_another_type_is_named_as_before(name: str) -> None:
    golden = json.loads((FOLDER / f"{name}.json").read_text())
    read = CODECS[name][0]
    assert {path: said(read, one) for path, one in faulty(golden["stored"])} == golden["faults"]
