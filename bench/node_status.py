# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m bench.node_status``: bytes that one heartbeat of a node makes the API server store.

etcd stores the whole object at every write: spec, status, and in ``metadata.managedFields`` the
names of all fields that each manager owns, one by one for lists with keys and none for atomic ones.
The baseline is the same node with lists with keys and every observation in every status.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from bench import report
from ullage.api.devices import Backend, GPUMode, Health, MpsState, MpsStatus, ObservedDevice
from ullage.api.labels import MANAGER_NODE, MANAGER_OPERATOR
from ullage.api.observations import MAX_OBSERVATIONS, Observation, ObservedPartner
from ullage.api.readers import JsonObject
from ullage.api.slices import DesiredSlice, ObservedRank, ObservedSlice, SliceKey, SlicePhase
from ullage.api.usage import ObservedUsage, RecentUsage
from ullage_node.kubelet.registrar import Registration
from ullage_node.status import NodeFacts, StatusFacts, body_of, judge, with_transitions
from ullage_node.telemetry.observations import ObservationBook

NODES: Final = 5_000
HEARTBEAT_S: Final = 60.0
STATUS_LIMIT: Final = 16 * 1024
DEVICES: Final = 8
SHARERS: Final = (2, 8)
"""Containers on each device: usual, and most."""
NOW: Final = "2026-01-01T00:00:00Z"
KEYED: Final = {
    "slices": ("container", "index", "podUID"),
    "devices": ("uuid",),
    "observations": ("id",),
    "partners": ("index",),
    "conditions": ("type",),
}
"""Keys of the lists as they were."""
CONDITIONS: Final = {"conditions": KEYED["conditions"]}
"""Keys of the lists as they are."""


def uuid(number: int) -> str:
    """A uid of the usual length."""
    return f"6f3d8a9e-5d1c-4c0e-9b1f-{number:012d}"


def slices(sharers: int) -> tuple[DesiredSlice, ...]:
    """What the operator wants of a node with so many containers on each device."""
    return tuple(
        DesiredSlice(
            key=SliceKey(pod_uid=uuid(number), container="main"),
            pod_namespace="team-vision",
            pod_name=f"train-resnet50-{number}",
            gpu=f"GPU-{uuid(number % DEVICES)}",
            percent=40,
            memory_mib=20_480,
            epoch=12,
            protected=True,
            workload_class="resnet50-b64",
            family="resnet",
            trust_domain="team-vision",
            max_slowdown_percent=130,
            solo_step_micros=91_234,
            context_overhead_mib=500,
        )
        for number in range(DEVICES * sharers)
    )


def devices() -> tuple[ObservedDevice, ...]:
    """The devices of the node."""
    server = MpsStatus(
        protocol=2, state=MpsState.ACTIVE, server_pid=34_567, contexts=2, context_limit=48
    )
    return tuple(
        ObservedDevice(
            uuid=f"GPU-{uuid(number)}",
            model="h100-80gb-hbm3",
            product_name="NVIDIA H100 80GB HBM3",
            memory_mib=81_559,
            contexts=8,
            modes=(GPUMode.EXCLUSIVE, GPUMode.FRACTIONAL),
            health=Health.HEALTHY,
            backend=Backend.MPS2,
            mps=server,
        )
        for number in range(DEVICES)
    )


def observed(part: DesiredSlice) -> ObservedSlice:
    """What the node says of a slice at work, every counter included."""
    return ObservedSlice(
        key=part.key,
        phase=SlicePhase.ATTACHED,
        gpu=part.gpu,
        percent=part.percent,
        memory_mib=part.memory_mib,
        epoch=part.epoch,
        pids=(1_234_567,),
        sm_count=52,
        memory_used_mib=19_000,
        steps=1_234_567,
        items=79_012_288,
        step_micros=101_234,
        solo_step_micros=91_234,
        windows=86_400,
        violations=12,
        checkpoint_age_s=300,
        usage=ObservedUsage(
            allocated_ms=34_560_000,
            used_ms=23_456_789,
            estimated=True,
            recent=RecentUsage(
                allocated_ms=720_000,
                used_ms=623_456,
                needed_percent=37,
                duty_percent=97,
                memory_mib=19_000,
            ),
        ),
        ranks=(
            ObservedRank(
                rank=3,
                steps=1_234_567,
                step_micros=101_234,
                compute_micros=80_123,
                wait_micros=15_123,
                data_wait_micros=5_123,
            ),
        ),
    )


def rows(count: int) -> tuple[Observation, ...]:
    """Observations of tenants in company."""
    row = Observation(
        id="",
        workload_class="resnet50-b64",
        namespace="team-vision",
        accelerator="h100-80gb-hbm3",
        percent=40,
        step_micros=101_234,
        at_s=1_767_225_600,
        family="resnet",
        partners=(ObservedPartner(workload_class="bert-large-b32", percent=40),),
        solo_step_micros=91_234,
        max_slowdown_percent=130,
        image=f"sha256:{'a' * 64}",
    )
    return tuple(replace(row, id=f"{number:024x}") for number in range(count))


def status_body(sharers: int, observations: Sequence[Observation]) -> JsonObject:
    """The apply body of the agent."""
    told = judge(NodeFacts(registration=Registration(registered=True)))
    return body_of(
        StatusFacts(
            name="gpu-node-0001.example.internal",
            uid=uuid(0),
            generation=17,
            epoch=12,
            version="0.1.0",
            driver="580.65.06",
            devices=devices(),
            slices=tuple(observed(part) for part in slices(sharers)),
            slots=64,
            used_slots=DEVICES * sharers,
            conditions=with_transitions(told, (), NOW, 17),
            observations=tuple(observations),
        ),
        NOW,
    )


def spec_of(sharers: int) -> dict[str, object]:
    """What the operator applies."""
    return {
        "epoch": 12,
        "slices": [part.to_wire() for part in slices(sharers)],
        "observationsRead": "0" * 24,
    }


def owned(value: object, keyed: Mapping[str, tuple[str, ...]], name: str = "") -> object:
    """The names of fields that the API server stores for an applied value (FieldsV1)."""
    if isinstance(value, Mapping):
        return {f"f:{field}": owned(part, keyed, field) for field, part in value.items()}
    if isinstance(value, list) and name in keyed:
        return {
            f"k:{compact({key: entry[key] for key in keyed[name]})}": {
                ".": {},
                **dict(_mapping(owned(entry, keyed)).items()),
            }
            for entry in value
        }
    return {}


def _mapping(value: object) -> Mapping[str, object]:
    assert isinstance(value, dict)
    return value


def compact(value: object) -> str:
    """JSON as the API server stores it."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def sizes(
    sharers: int, observations: Sequence[Observation], keyed: Mapping[str, tuple[str, ...]]
) -> tuple[int, int]:
    """Bytes of a status with the names of its fields, and of the whole stored object."""
    body = status_body(sharers, observations)
    status, spec = {"status": body["status"]}, {"spec": spec_of(sharers)}
    said, wanted = (
        len(compact(part)) + len(compact(_entry(manager, owned(part, keyed))))
        for manager, part in ((MANAGER_NODE, status), (MANAGER_OPERATOR, spec))
    )
    return said, said + wanted + len(compact(body["metadata"]))


def _entry(manager: str, fields: object) -> dict[str, object]:
    return {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": "ullage.dev/v1alpha1",
        "time": NOW,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        "subresource": "status",
    }


def mib_per_s(size: int) -> float:
    """What heartbeats of all nodes make etcd write."""
    return size * NODES / HEARTBEAT_S / 2**20


def main() -> int:
    """Compute the sizes.

    Returns:
        0, or 1 when a status in a steady state is above the limit.
    """
    book = ObservationBook()
    for row in rows(MAX_OBSERVATIONS):
        book.take(row)
    figures: dict[str, report.Figure] = {}
    table: list[report.Row] = []
    for sharers in SHARERS:
        count = DEVICES * sharers
        _, before = sizes(sharers, rows(MAX_OBSERVATIONS), KEYED)
        for what, told in (("steady", ()), ("full_window", book.rows)):
            status, whole = sizes(sharers, told, CONDITIONS)
            name = f"{what}_{count}_slices"
            figures |= {
                f"status_bytes_{name}": status,
                f"stored_bytes_{name}": whole,
                f"mib_per_s_{name}": round(mib_per_s(whole), 2),
            }
            table += [
                report.Row(
                    what=f"status, {count} slices, {len(told)} observations waiting",
                    ours=f"{status:,} B",
                    limit=f"{STATUS_LIMIT:,} B" if what == "steady" and sharers == 2 else "",
                ),
                report.Row(
                    what=f"stored at each heartbeat, {NODES:,} nodes",
                    ours=f"{whole:,} B, {mib_per_s(whole):.1f} MiB/s",
                    baseline=f"{before:,} B, {mib_per_s(before):.1f} MiB/s",
                ),
            ]
        figures |= {
            f"stored_bytes_before_{count}_slices": before,
            f"mib_per_s_before_{count}_slices": round(mib_per_s(before), 2),
        }
    report.write("node_status", figures, table)
    usual = DEVICES * SHARERS[0]
    return report.judge(
        figures, {f"status_bytes_steady_{usual}_slices": lambda size: size <= STATUS_LIMIT}
    )


if __name__ == "__main__":
    sys.exit(main())
