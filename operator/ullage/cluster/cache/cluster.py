# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator's cache of the cluster: mutable, single-threaded, rebuilt from the API.

Streams feed it, ``freeze`` returns immutable snapshots, ``assume`` overlays writes that were sent
and not yet observed. An update costs what it changes. This module never decides, writes or waits,
and no result may depend on the order of different streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from ullage import ports
from ullage.cluster.cache.foreign import ForeignStore
from ullage.cluster.cache.overlay import (
    EffectOf,
    Overlaid,
    Overlay,
    PodCreated,
    PodLeaving,
    PodUngated,
    SlicesSet,
    StatusSet,
    WorkloadLeaving,
    seen_gpu_node,
    seen_pod,
    seen_workload,
)
from ullage.cluster.cache.own import GPUNodeStore, NodeStore, PoolStore, WorkloadStore
from ullage.cluster.cache.pods import PodGroupStore, PodStore
from ullage.cluster.cache.refusals import RefusalKey, Refusals
from ullage.cluster.cache.stores import (
    ChildStore,
    Complain,
    Context,
    PlainStore,
    PolicyStore,
    ProfileStore,
    Table,
    full_name_of,
    name_of,
)
from ullage.cluster.cache.volumes import Volumes
from ullage.cluster.projection.pod_template import Blueprint, Seen
from ullage.cluster.projection.rest import (
    project_deployment,
    project_device_profile,
    project_service,
)
from ullage.cluster.projection.trace import project_profile_request
from ullage.cluster.projection.tuning import project_tuning_job
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import ForeignPod, PodRecord
from ullage.cluster.records.pool import PoolRecord, PoolStatus
from ullage.cluster.records.profile import DeviceProfileRecord
from ullage.cluster.records.router import RouterLoad, RouterPod
from ullage.cluster.records.snapshot import DeploymentRecord, RefusedWrite, ServiceRecord, Snapshot
from ullage.cluster.records.straggler import StragglerRecord
from ullage.cluster.records.tier import CoordinatorReport
from ullage.cluster.records.trace import LastTrace, NodeTraces, ProfileRequestRecord, last_traces
from ullage.cluster.records.tuning import TuningRecord
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.cluster.times import ASSUME_TTL_S
from ullage.cluster.values import streams
from ullage.cluster.values.streams import Stream
from ullage.engines.admission.model import LearnedModel
from ullage.ports import JsonObject

MOST_EPOCH: Final = 2**31 - 2**16
"""``leaseTransitions`` has 31 bits; the rest is left for future leaders."""


class ClusterState:
    """The observed objects with assumed writes on top; implements ``Sink``."""

    def __init__(
        self,
        effect_of: EffectOf,
        *,
        assume_ttl_s: float = ASSUME_TTL_S,
        complain: Complain | None = None,
    ) -> None:
        """``effect_of`` returns an action's effect, ``complain`` receives unreadable objects."""
        self._effect_of = effect_of
        self._overlay = Overlay(assume_ttl_s)
        self._refusals = Refusals()
        self._context = context = Context(overlay=self._overlay, refusals=self._refusals)
        if complain is not None:
            context.complain = complain
        self._nodes = NodeStore(streams.NODES.name, context)
        self._gpu_nodes = GPUNodeStore(streams.GPU_NODES.name, context)
        self._foreign = ForeignStore(streams.FOREIGN_PODS.name, context, self._counts)
        self._workloads: Table[str, WorkloadRecord] = Table()
        self._pods = PodStore(streams.PODS.name, context, self._workloads, self._foreign)
        self._pod_groups = PodGroupStore(streams.POD_GROUPS.name, context, self._pods)
        self._jobs = self._workload_store(streams.TRAINING_JOBS, WorkloadKind.TRAINING_JOB)
        self._services = self._workload_store(
            streams.INFERENCE_DEPLOYMENTS, WorkloadKind.INFERENCE_DEPLOYMENT
        )
        self._deployments: ChildStore[DeploymentRecord] = ChildStore(
            streams.DEPLOYMENTS.name, context, "Deployment", project_deployment, lambda r: r.uid
        )
        self._kube_services: ChildStore[ServiceRecord] = ChildStore(
            streams.SERVICES.name, context, "Service", project_service, lambda r: r.uid
        )
        self._profiles = ProfileStore(streams.WORKLOAD_PROFILES.name, context)
        self._device_profiles: PlainStore[str, DeviceProfileRecord] = PlainStore(
            streams.DEVICE_PROFILES.name, context, name_of, project_device_profile
        )
        self._device_profiles.tells = ports.DEVICE_PROFILE.kind
        self._policies = PolicyStore(streams.SCHEDULING_POLICIES.name, context)
        self._pools = PoolStore(streams.CAPACITY_POOLS.name, context)
        self._tunings: PlainStore[tuple[str, str], TuningRecord] = PlainStore(
            streams.TUNING_JOBS.name,
            context,
            full_name_of,
            project_tuning_job,
            lambda job: job.ref.uid,
        )
        self._tunings.tells = ports.TUNING_JOB.kind
        self._profile_requests: PlainStore[tuple[str, str], ProfileRequestRecord] = PlainStore(
            streams.PROFILE_REQUESTS.name,
            context,
            full_name_of,
            project_profile_request,
            lambda request: request.ref.uid,
        )
        self._profile_requests.tells = ports.PROFILE_REQUEST.kind
        self._traced: tuple[
            Mapping[tuple[str, str], ProfileRequestRecord],
            Mapping[tuple[str, str], LastTrace],
        ] = ({}, {})
        """The requests of which the last traces are, and these."""
        self._volumes = Volumes(context, self._has_rules)
        stores = (
            self._nodes,
            self._gpu_nodes,
            self._pods,
            self._foreign,
            self._jobs,
            self._services,
            self._deployments,
            self._kube_services,
            self._profiles,
            self._device_profiles,
            self._policies,
            self._pools,
            self._tunings,
            self._profile_requests,
            self._volumes.namespaces,
            self._volumes.claims,
            self._volumes.volumes,
            self._volumes.classes,
            self._pod_groups,
        )
        self._stores = {store.stream: store for store in stores}
        self._seen_pod = Overlaid(self._overlay, (PodUngated, PodLeaving), seen_pod)
        self._seen_workload = Overlaid(self._overlay, (StatusSet, WorkloadLeaving), seen_workload)
        self._models: Mapping[str, LearnedModel] = {}
        self._coordinators: Mapping[str, CoordinatorReport] = {}
        self._routers: Mapping[str, RouterLoad] = {}
        self._stragglers: Mapping[str, StragglerRecord] | None = None
        self._frozen: Snapshot | None = None

    # -- Sink ------------------------------------------------------------------------------

    def replace(self, stream: Stream, items: Sequence[JsonObject], now: float) -> bool:
        """Process a full list: adds, changes and removals follow from it."""
        return self._stores[stream.name].replace(items, now)

    def upsert(self, stream: Stream, item: JsonObject, now: float) -> bool:
        """Process an added or changed object."""
        return self._stores[stream.name].upsert(item, now)

    def remove(self, stream: Stream, item: JsonObject, now: float) -> bool:
        """Process the deletion of an object."""
        return self._stores[stream.name].remove(item)

    # -- what was learned ------------------------------------------------------------------

    def set_models(self, models: Mapping[str, LearnedModel]) -> None:
        """Sets the models of decisions, by accelerator."""
        self._models = models
        self._context.touch()

    def set_coordinators(self, reports: Mapping[str, CoordinatorReport]) -> None:
        """Sets the reports of coordinators, by uid of the job."""
        self._coordinators = reports
        self._context.touch()

    def set_routers(self, loads: Mapping[str, RouterLoad]) -> None:
        """Set the loads reported by routers, by uid of the service."""
        self._routers = loads
        self._context.touch()

    def set_stragglers(self, records: Mapping[str, StragglerRecord]) -> None:
        """Set the slow ranks, by uid of the job."""
        self._stragglers = records
        self._context.touch()

    def set_pool(self, uid: str, status: PoolStatus) -> bool:
        """Set the known state of a pool; returns True if it changed."""
        return self._pools.tell(uid, status)

    # -- what is assumed ---------------------------------------------------------------------

    def assume(self, actions: Sequence[object], now: float) -> None:
        """Count actions as done until they are observed, dropped or expired."""
        for action in actions:
            effect = self._effect_of(action)
            if effect is not None:
                self._overlay.add(effect, now)
                self._context.touch()

    def forget(self, action: object) -> None:
        """Undo one assumption; a newer one on the same object stays."""
        effect = self._effect_of(action)
        if effect is not None and self._overlay.drop(effect):
            self._context.touch()

    def refuse(
        self, key: RefusalKey, refused: RefusedWrite, *, now: float, owner_uid: str = ""
    ) -> None:
        """Report that the API rejected a write of this object, and retry after a back-off.

        Cleared by a new generation of the owner, by the object's appearance (pods), or when the
        wait is over (10 s doubling to 5 min).
        """
        owner = self._workloads.get(owner_uid)
        self._refusals.refuse(
            key,
            refused,
            now,
            owner_uid=owner_uid,
            generation=owner.generation if owner else 0,
        )
        self._context.touch()

    def expire(self, now: float, backpressure_ended_at: float = 0.0) -> int:
        """Drop assumptions that were never observed; returns their number. Ends back-offs too.

        ``backpressure_ended_at`` is the time since which the API server keeps up; 0 = always.
        """
        expired = self._overlay.expire(now, backpressure_ended_at)
        forgotten = self._context.node_refusals.expire(now)
        if self._refusals.expire(now) or expired or forgotten:
            self._context.touch()
        return expired

    def end_term(self) -> None:
        """Discard everything but the streams' data, like a new process.

        The leadership of these assumptions is over; another may have led before the next one of
        this process begins.
        """
        self._overlay.clear()
        self._refusals.clear()
        self._pools.forget_told()
        self._models, self._coordinators, self._routers = {}, {}, {}
        self._stragglers = None
        self._context.touch()

    def next_retry(self) -> float | None:
        """Time at which the next rejected write may be retried; ``None`` = none waits."""
        return self._refusals.next_end()

    @property
    def assumed(self) -> int:
        """Number of assumptions in force."""
        return len(self._overlay)

    # -- reading -----------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Increases with every change visible in a snapshot."""
        return self._context.version

    @property
    def projection_errors(self) -> Mapping[str, int]:
        """Number of unreadable objects, by stream."""
        return self._context.errors

    @property
    def projection_messages(self) -> Mapping[str, str]:
        """The latest projection error of each stream."""
        return self._context.messages

    def counts(self) -> Mapping[str, int]:
        """Number of stored objects, by stream."""
        return {name: len(store) for name, store in self._stores.items()}

    def blueprint(self, uid: str) -> Blueprint | None:
        """Template and identities for a workload's children, in its last readable version."""
        return self._jobs.blueprints.get(uid) or self._services.blueprints.get(uid)

    def seen(self, kind: str, namespace: str, name: str) -> Seen | None:
        """Identity of a GPUNode, Deployment or Service in the watch cache."""
        return self._context.seen.get((kind, namespace, name))

    def coordinator_pods(self) -> Mapping[str, PodRecord]:
        """Coordinator pods of jobs in tiers in the watch cache, by uid of the job; no snapshot."""
        return {pod.owner.uid: pod for pod in self._pods.coordinators() if pod.owner.uid}

    def pods_of(self, uid: str) -> Sequence[PodRecord]:
        """Our pods of a TrainingJob, coordinator and requests included, as watched; no snapshot."""
        return self._pods.of(uid)

    def trials_of(self, uid: str) -> Set[str]:
        """Uids of TrainingJobs that name a TuningJob of this uid as theirs; no snapshot."""
        return self._jobs.trials.get(uid, frozenset())

    def routers_of_sleepers(self) -> Mapping[str, Sequence[RouterPod]]:
        """Routers of services that may have no replica, by uid of the service; no snapshot."""
        routers: dict[str, list[RouterPod]] = {}
        for pod in sorted(self._foreign.routers.values(), key=lambda pod: pod.uid):
            uid = self._pods.service_uid(pod.namespace, pod.service)
            service = self._workloads.get(uid)
            if service is not None and service.batching is not None and service.may_sleep:
                routers.setdefault(uid, []).append(pod)
        return routers

    def router_pods(self, namespace: str, service: str) -> int:
        """Bound pods that claim to route requests of a service and have not ended; no snapshot."""
        pods = self._foreign.routers.values()
        return sum((pod.namespace, pod.service) == (namespace, service) for pod in pods)

    def foreign_pods(self) -> Mapping[str, ForeignPod]:
        """Pods that claim a workload which did not create them, by uid; in no snapshot."""
        return self._pods.foreign()

    def unprepared_pods(self) -> Mapping[str, ForeignPod]:
        """Bound pods that request devices by a label and were not prepared by admission, by uid."""
        return self._foreign.unprepared

    def pools_written(self) -> Mapping[str, PoolRecord]:
        """CapacityPools as in the API."""
        return self._pools.written()

    def tuning_jobs(self) -> Mapping[tuple[str, str], TuningRecord]:
        """TuningJobs by namespace and name, in their last readable version; in no snapshot."""
        return self._tunings.table.view()

    def profile_requests(self) -> Mapping[tuple[str, str], ProfileRequestRecord]:
        """ProfileRequests by namespace and name; in no snapshot."""
        return self._profile_requests.table.view()

    def node_traces(self) -> Mapping[str, NodeTraces]:
        """Step traces by name of the GPUNode; in no snapshot."""
        return self._gpu_nodes.traces.view()

    def highest_epoch(self) -> int:
        """Highest epoch of any GPUNode, 0 without one.

        An epoch that a Lease cannot continue is no leader's: an agent may have forged it.
        """
        highest = 0
        for record in self._gpu_nodes.table.values():
            desired = max((item.epoch for item in record.desired), default=0)
            observed = max((item.epoch for item in record.observed), default=0)
            epochs = (record.epoch, desired, observed)
            highest = max(highest, *(epoch for epoch in epochs if epoch <= MOST_EPOCH))
        return highest

    def freeze(self, now: float) -> Snapshot:
        """An immutable snapshot; unchanged parts are shared with the last one."""
        self._pods.adopted.settle()
        if self._frozen is None or self._frozen.version != self.version:
            self._frozen = self._build(now)
        elif self._frozen.taken_at != now:
            self._frozen = replace(self._frozen, taken_at=now)
        return self._frozen

    # -- parts of freeze ---------------------------------------------------------------------

    def _build(self, now: float) -> Snapshot:
        ruled = [
            pod
            for uid in sorted(self._pods.ruled)
            if (pod := self._pods.table.get(uid)) is not None
        ]
        pods_around = self._foreign.alike(all_pods=bool(ruled))
        ours = self._nodes.ours() | set(self._gpu_nodes.keys())
        gpu_nodes = self._pods.reservations.shown(self._seen_gpu_nodes())
        workloads = self._seen_workload.view(self._workloads.view())
        pods = self._pods.table.view()
        planned = self._pods.reservations.planned(
            lambda space, name: workloads.get(self._jobs.named.get((space, name), ""))
        )
        return Snapshot(
            version=self.version,
            taken_at=now,
            nodes=self._nodes.table.view(),
            gpu_nodes=gpu_nodes,
            pods=self._seen_pod.view({**pods, **planned} if planned else pods),
            foreign_use={
                name: use for name in ours if (use := self._foreign.use(name)) is not None
            },
            slot_holders={
                name: holders
                for name in sorted(ours)
                if (holders := self._foreign.slot_holders(name))
            },
            pods_around=pods_around,
            namespaces=self._volumes.namespaces.table.view() if pods_around or ruled else {},
            claims=self._volumes.shown(ruled),
            workloads=workloads,
            deployments=self._deployments.table.view(),
            services=self._kube_services.table.view(),
            profiles=self._profiles.seen(),
            device_profiles=self._device_profiles.table.view(),
            pools=self._pools.seen(),
            stragglers=self._stragglers,
            models=self._models,
            leads=self._coordinators,
            routers=self._routers,
            router_faults=self._router_faults(),
            policy=self._policies.binding(),
            idle_policies=self._policies.idle(),
            unread=self._context.unread.shown(),
            creating=frozenset(
                (created.namespace, created.name) for created in self._overlay.all(PodCreated)
            ),
            refused_writes=self._refusals.shown(),
            node_refusals=self._context.node_refusals.shown(),
            refused_starts=self._context.node_refusals.shown_by_name(),
            traces=self._last_traces(),
        )

    def _last_traces(self) -> Mapping[tuple[str, str], LastTrace]:
        """The last traces; the same object until a request changes."""
        requests = self._profile_requests.table.view()
        if requests is not self._traced[0]:
            self._traced = requests, last_traces(requests.values())
        return self._traced[1]

    def _seen_gpu_nodes(self) -> Mapping[str, GPUNodeRecord]:
        observed = self._gpu_nodes.table.view()
        changed = {}
        for name in self._overlay.targets(SlicesSet):
            record = seen_gpu_node(name, observed.get(name), self._overlay)
            if record is not None:
                changed[name] = record
        return {**observed, **changed} if changed else observed

    def _router_faults(self) -> Mapping[tuple[str, str], str]:
        faults = (
            (pod.namespace, pod.service, pod.uid, pod.fault)
            for pod in self._foreign.routers.values()
            if pod.fault and not pod.leaving
        )
        return {(space, service): fault for space, service, _, fault in sorted(faults)}

    def _has_rules(self) -> bool:
        """True when any of our pods has rules about other pods, ports or volumes."""
        return bool(self._pods.ruled)

    def _counts(self, node: str) -> bool:
        """True when foreign pods on a node are relevant: with rules, those of any node are."""
        is_ours = self._nodes.managed(node) or self._gpu_nodes.table.get(node) is not None
        return is_ours or self._has_rules()

    def _workload_store(self, stream: Stream, kind: WorkloadKind) -> WorkloadStore:
        return WorkloadStore(stream.name, self._context, kind, self._workloads, self._pods)
