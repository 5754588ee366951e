# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A server takes a router, the Service that leads to it, and takes both away by uid."""

from __future__ import annotations

from typing import Any

from builders_raw import raw_template
from contract.writer.test_the_server_takes_what_the_writer_sends import (
    WHY,
    World,
    a_brain,
    failure,
    now,
)
from fakes.small_world import Brain
from ullage import ports
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.model.plan import ApplyRoutedService, ApplyRouter, ApplyService, DeleteChild


def _template() -> dict[str, Any]:
    template = raw_template()
    template["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": 8000}]
    return template


def _service(brain: Brain) -> WorkloadRecord:
    brain.look()
    found = [one for one in now(brain).workloads.values() if one.ref.name == "reader"]
    (service,) = found
    return service


async def test_a_router_is_applied_seen_and_deleted(world: World) -> None:
    async with a_brain(world) as (brain, cluster):
        cluster.server.put(
            ports.INFERENCE_DEPLOYMENT,
            {
                "metadata": {"name": "reader", "namespace": "team"},
                "spec": {
                    "template": _template(),
                    "slo": {"latencyMs": 50},
                    "batching": {"sizes": [1, 4]},
                },
            },
        )
        service = _service(brain)
        assert not service.invalid
        batching = service.batching
        assert batching is not None
        assert batching.sizes == (1, 4)
        owner = service.ref
        router = ApplyRouter(
            owner=owner,
            name="reader-router",
            image="ullage-operator:1",
            batching=batching,
            objective_ms=50,
            version="abc",
            **WHY,
        )
        named = ApplyService(owner=owner, name="reader-replicas", headless=True, **WHY)
        front = ApplyRoutedService(owner=owner, name="reader", headless=False, **WHY)
        for action in (named, router, front):
            assert await failure(brain, action) is None
        brain.look()
        seen = now(brain).deployments[("team", "reader-router")]
        assert (seen.owner_uid, seen.template_hash, seen.replicas) == (owner.uid, "abc", 1)
        assert now(brain).services[("team", "reader")].routed
        names = now(brain).services[("team", "reader-replicas")]
        assert (names.routed, names.owner_uid) == (False, owner.uid)
        stored = cluster.server.get(ports.DEPLOYMENT, "reader-router", "team")
        assert stored is not None
        pod = stored["spec"]["template"]
        assert pod["metadata"]["labels"] == {"ullage.dev/router": "reader"}

        back = ApplyService(owner=owner, name="reader", headless=False, **WHY)
        assert await failure(brain, back) is None
        brain.look()
        assert not now(brain).services[("team", "reader")].routed
        for kind, name, uid in (
            ("Deployment", "reader-router", seen.uid),
            ("Service", "reader-replicas", names.uid),
        ):
            child = ObjectRef(kind=kind, namespace="team", name=name, uid=uid)
            other = ObjectRef(kind=kind, namespace="team", name=name, uid="uid-of-another")
            assert await failure(brain, DeleteChild(child=other, owner=owner, **WHY)) is not None
            assert await failure(brain, DeleteChild(child=child, owner=owner, **WHY)) is None
        brain.look()
        assert ("team", "reader-router") not in now(brain).deployments
        assert set(now(brain).services) == {("team", "reader")}
