# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Grants containers GPUs or shares of them, and proves that each stays inside its share.

A container with a whole device bypasses MPS, and the device's server is stopped meanwhile. A
container with a share becomes a client of the device's server. The host's processes on each device
are read with their cgroups (``host_processes``), the server lists its clients; a share counts only
when both agree (``proof``). This module starts nothing and never waits: if a server is not ready it
refuses, and kubelet retries.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ullage.api.checks import NodeCheck
from ullage.api.devices import Backend
from ullage.api.environment import STEPS_FILE
from ullage.api.readers import WireError
from ullage.api.reasons import Reason
from ullage_node.devices.cgroups import CgroupUnreadable, controller_paths, pod_uid_of, read_text
from ullage_node.devices.nvidia.cdi import (
    CdiUnusable,
    Survey,
    ToolkitSpecifications,
    merge,
    plain_edits,
)
from ullage_node.devices.nvidia.checks import FirstHour, checks_of
from ullage_node.devices.nvidia.choice import MPS_BACKENDS, WHOLE_PERCENT
from ullage_node.devices.nvidia.device_files import FilesUnknown, files_of, read_minors
from ullage_node.devices.nvidia.host_processes import ProcessesUnseen
from ullage_node.devices.nvidia.known import NvidiaDevices
from ullage_node.devices.nvidia.read import GpuProcess, NvidiaDevice
from ullage_node.devices.nvidia.sharing import client_edits, limits_of, namespace_of, pipe_of
from ullage_node.devices.nvidia.sight import Sight, attachment_of
from ullage_node.model.devices import (
    Attachment,
    AttachState,
    BackendPaths,
    BoundSlice,
    ContainerBinding,
    ContainerEdits,
    ContainerKey,
    PrepareRefused,
)
from ullage_node.mps.client import MpsUnreachable
from ullage_node.mps.records import MpsServer
from ullage_node.step_record import read_step_record
from ullage_node.times import CLIENT_GONE_PAUSE_S, CLIENT_GONE_S

CONTEXT_OVERHEAD_MIB: Final = 512
"""Memory of a context beside its tenant's, where neither the slice nor the node's setting gives it;
the operator's default too."""
_USING: Final = frozenset({AttachState.ENFORCED, AttachState.UNENFORCED})


class NvidiaDriver:
    """Turns decided shares into edits, and readings into proof."""

    def __init__(
        self,
        devices: NvidiaDevices,
        paths: BackendPaths,
        *,
        overhead_mib: int = CONTEXT_OVERHEAD_MIB,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._devices = devices
        self._shares = devices.shares
        self._paths = paths
        self._overhead_mib = overhead_mib
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._toolkit = ToolkitSpecifications(paths.cdi_dirs)
        self._using: dict[bool, dict[ContainerKey, Attachment]] = {False: {}, True: {}}
        """Readings of containers that use a device; the key is true for whole devices."""
        self._proven: dict[bool, Attachment] = {}
        """The newest conforming one, also after its container ended."""
        self._last_seen: dict[ContainerKey, tuple[int, ...]] = {}
        self._unlisted_since: dict[tuple[str, int], float] = {}
        self._once_listed: set[tuple[str, int]] = set()

    @property
    def version(self) -> str:
        """Version of the kernel driver, as NVML reports it."""
        return self._devices.driver_version

    def checks(self) -> tuple[NodeCheck, ...]:
        """See :mod:`ullage_node.devices.nvidia.checks`."""
        known = self._devices.known
        survey, problem, remedy = Survey(edits=None), "", ""
        try:
            devices = tuple(known.values())
            survey = self._toolkit.survey(devices, self._files(devices))
        except CdiUnusable as error:
            problem, remedy = str(error), error.remedy
        except (FilesUnknown, OSError) as error:
            problem = str(error)
        return checks_of(
            FirstHour(
                driver=self._devices.driver,
                devices=known,
                choices={uuid: self._devices.choice(uuid) for uuid in known},
                mps=self._has_supervisor,
                mps_problem=self._shares.problem,
                installed=self._shares.installed,
                servers={uuid: server for uuid in known if (server := self._shares.server(uuid))},
                unseen=self._devices.unseen,
                shares=self._seen_of(whole=False),
                wholes=self._seen_of(whole=True),
                unable=self._devices.unable,
                suspends=tuple(uuid for uuid in known if self._devices.suspends(uuid)),
                toolkit=survey.edits is not None,
                toolkit_problem=problem,
                toolkit_remedy=remedy,
                toolkit_remarks=survey.remarks,
            )
        )

    def context_overhead_mib(self, gpu: str) -> int:
        """Memory of each context; 0 where the only tenant sees the whole device."""
        if gpu not in self._devices.known:
            return 0
        backend = self._devices.choice(gpu).backend
        return 0 if backend is Backend.EXCLUSIVE else self._overhead_mib

    # -- before a start --------------------------------------------------------------------------

    async def prepare(self, binding: ContainerBinding) -> ContainerEdits:
        """Device files, libraries and the share for one start of the container.

        Raises:
            PrepareRefused: an unknown device, a share that cannot be granted, a server that is not
                ready, or a broken toolkit specification.
        """
        for part in binding.slices:
            if part.gpu not in self._devices.known:
                raise PrepareRefused(Reason.DEVICE_LOST, f"{part.gpu} was never seen on this node")
        devices = [self._devices.known[part.gpu] for part in binding.slices]
        if len(devices) > 1 and any(device.parent for device in devices):
            raise PrepareRefused(
                Reason.MODE_UNSUPPORTED,
                "CUDA uses one MIG device in a process: ask for one device in each container",
            )
        try:
            files = self._files(devices)
            whole = self._toolkit.edits(devices, files) or plain_edits(devices, files)
        except CdiUnusable as error:
            text = f"{error}; {error.remedy}"
            raise PrepareRefused(Reason.CDI_UNAVAILABLE, text) from error
        except FilesUnknown as error:
            raise PrepareRefused(Reason.CDI_UNAVAILABLE, str(error)) from error
        if all(part.percent == WHOLE_PERCENT for part in binding.slices):
            await self._clear(binding)
            return whole
        if len(binding.slices) > 1:
            raise PrepareRefused(
                Reason.MODE_UNSUPPORTED, "several devices of one container must be whole"
            )
        share = await self._share(binding, binding.slices[0], devices[0])
        return merge([whole, share])

    def _files(self, devices: Iterable[NvidiaDevice]) -> dict[str, tuple[str, ...]]:
        minors = read_minors(self._paths.proc_root)
        return {device.uuid: files_of(device, minors) for device in devices}

    async def _clear(self, binding: ContainerBinding) -> None:
        """Ensure that the container has its devices exclusively; their servers end."""
        gpus = {part.gpu for part in binding.slices}
        await self._refresh(fresh=gpus)
        for gpu in sorted(gpus):
            if clients := self._clients(gpu):
                raise PrepareRefused(
                    Reason.DRAINING, f"{len(clients)} MPS clients have not left {gpu}"
                )
        self._shares.stand_aside(binding)
        await self._refresh()

    async def _share(
        self, binding: ContainerBinding, part: BoundSlice, device: NvidiaDevice
    ) -> ContainerEdits:
        choice = self._devices.choice(part.gpu)
        if choice.backend is Backend.TIME_SLICE:
            return ContainerEdits()
        if choice.backend not in MPS_BACKENDS:
            raise PrepareRefused(
                Reason.MODE_UNSUPPORTED,
                f"{part.percent} % of {part.gpu}: {choice.problem or 'it is given whole'}; "
                "ask for mode Exclusive",
            )
        await self._refresh()
        server = self._ready(part.gpu)
        cap_mib = part.cap_mib(self._overhead_mib)
        name = ""
        if choice.backend is Backend.MPS3:
            name = namespace_of(binding.key)
            await self._limit(part, name, cap_mib)
        return client_edits(
            self._paths.run_dir,
            device,
            part,
            cap_mib=cap_mib,
            namespace=name,
            memory_key=server.memory_key,
        )

    def _ready(self, gpu: str) -> MpsServer:
        """The device's server, if it accepts a client now."""
        server = self._shares.server(gpu)
        if server is None:
            why = self._shares.problem or "its MPS server is ordered and not there yet"
            raise PrepareRefused(Reason.MPS_NOT_READY, f"{gpu}: {why}")
        if not server.ready:
            text = f"the MPS server of {gpu} is {server.state.value}: {server.why}"
            raise PrepareRefused(Reason.MPS_NOT_READY, text)
        return server

    async def _limit(self, part: BoundSlice, name: str, cap_mib: int) -> None:
        assert self._shares.port is not None
        try:
            failed = await self._shares.port.limit(part.gpu, limits_of(part, name, cap_mib))
        except MpsUnreachable as error:
            failed = str(error)
        if failed:
            raise PrepareRefused(
                Reason.MPS_NOT_READY, f"{part.gpu} has no namespace for the slice: {failed}"
            )

    # -- while it runs ---------------------------------------------------------------------------

    async def observe(
        self, bindings: Sequence[ContainerBinding]
    ) -> Mapping[ContainerKey, Attachment]:
        """Observe which processes use which GPU, and compare with the decision."""
        for binding in bindings:
            self._shares.stand_aside(binding)
        self._shares.ordering = True
        try:
            sight = await self._look(bindings)
        except (ProcessesUnseen, CgroupUnreadable) as error:
            unread = Attachment(state=AttachState.UNVERIFIED, message=str(error))
            return {binding.key: self._remember(binding.key, unread) for binding in bindings}
        attachments = {binding.key: attachment_of(binding, bindings, sight) for binding in bindings}
        self._keep_readings(bindings, attachments)
        return {key: self._remember(key, seen) for key, seen in attachments.items()}

    def _keep_readings(
        self, bindings: Sequence[ContainerBinding], attachments: Mapping[ContainerKey, Attachment]
    ) -> None:
        for binding in bindings:
            seen, whole = attachments[binding.key], binding.slices[0].percent == WHOLE_PERCENT
            self._using[whole].pop(binding.key, None)
            if seen.state in _USING:
                self._using[whole][binding.key] = seen
            if seen.state is AttachState.ENFORCED:
                self._proven[whole] = seen

    def _seen_of(self, *, whole: bool) -> tuple[Attachment, ...]:
        """Readings of containers, or the last conforming one."""
        proven = self._proven.get(whole)
        return tuple(self._using[whole].values()) or ((proven,) if proven else ())

    async def _look(self, bindings: Sequence[ContainerBinding]) -> Sight:
        """Read processes first, clients after: each of the former must be among the latter."""
        usage = await self._devices.look()
        owners = {pid: self._pod_of(pid) for pid in {p.pid for p in usage.processes}}
        shared = {part.gpu for b in bindings for part in b.slices if part.percent < WHOLE_PERCENT}
        ours = {binding.key.pod_uid for binding in bindings}
        await self._refresh(
            fresh={
                process.gpu
                for process in usage.processes
                if process.gpu in shared
                and owners[process.pid] in ours
                and process.pid not in self._clients(process.gpu)
            }
        )
        clients = {gpu: self._clients(gpu) for gpu in shared}
        owners |= {
            pid: self._pod_of(pid) for pids in clients.values() for pid in pids if pid not in owners
        }
        return Sight(
            processes=usage.processes,
            owners=owners,
            blind=self._blind(bindings) | dict(usage.unread),
            clients=clients,
            servers={gpu: self._shares.server(gpu) for gpu in shared},
            server_problem=self._shares.problem,
            devices=self._devices.known,
            choices={gpu: self._devices.choice(gpu) for gpu in shared & self._devices.known.keys()},
            overhead_mib=self._overhead_mib,
            sm_counts={binding.key: self._reported_sms(binding.key) for binding in bindings},
            pipes={
                binding.key: pipe_of(
                    self._paths.run_dir,
                    self._devices.known[binding.slices[0].gpu],
                    namespace_of(binding.key),
                )
                for binding in bindings
                if binding.slices[0].gpu in self._devices.known
            },
            unlisted=self._unlisted(usage.processes),
            once_listed=self._once_listed,
        )

    def _blind(self, bindings: Sequence[ContainerBinding]) -> dict[str, str]:
        return {
            part.gpu: f"{part.gpu} was never seen on this node"
            for binding in bindings
            for part in binding.slices
            if part.gpu not in self._devices.known
        }

    def _clients(self, gpu: str) -> tuple[int, ...]:
        server = self._shares.server(gpu)
        return (server.clients or ()) if server else ()

    def _unlisted(self, processes: Sequence[GpuProcess]) -> dict[tuple[str, int], float]:
        """Seconds for which each process has used a served device without being a client."""
        now, before = self._clock(), self._unlisted_since
        users = {
            (process.gpu, process.pid)
            for process in processes
            if self._devices.choice(process.gpu).backend in MPS_BACKENDS
        }
        listed = {(gpu, pid) for gpu, pid in users if pid in self._clients(gpu)}
        self._once_listed = (self._once_listed & users) | listed
        self._unlisted_since = {user: before.get(user, now) for user in users - listed}
        return {user: now - since for user, since in self._unlisted_since.items()}

    def _reported_sms(self, key: ContainerKey) -> int:
        """The SM count in the container's step record, 0 = none; a broken record counts as none."""
        path = self._paths.run_dir / "steps" / key.directory / STEPS_FILE
        with contextlib.suppress(WireError):
            record = read_step_record(path)
            return record.sm_count if record else 0
        return 0

    async def _refresh(self, fresh: set[str] | None = None) -> None:
        devices = tuple(self._devices.known.values())
        await self._shares.refresh(devices, self._devices.driver, fresh or ())

    # -- its end ---------------------------------------------------------------------------------

    async def detach(self, binding: ContainerBinding) -> str:
        """Terminate the container's clients through their server, one after another.

        Killing the container's processes afterwards disturbs no other client of the device.
        """
        if self._shares.port is None:
            return ""
        failed: list[str] = []
        for part in binding.slices:
            await self._refresh(fresh={part.gpu})
            for pid in self._own_clients(binding, part.gpu):
                try:
                    why = await self._shares.port.terminate(part.gpu, pid)
                except MpsUnreachable as error:
                    why = str(error)
                failed += [f"{pid}: {why}"] if why else []
            if not failed and not await self._left(binding, part.gpu):
                failed.append(f"clients are still listed on {part.gpu}")
        return "; ".join(failed)

    async def _left(self, binding: ContainerBinding, gpu: str) -> bool:
        for _ in range(int(CLIENT_GONE_S / CLIENT_GONE_PAUSE_S)):
            await self._refresh(fresh={gpu})
            if not self._own_clients(binding, gpu):
                return True
            await asyncio.sleep(CLIENT_GONE_PAUSE_S)
        return False

    def _own_clients(self, binding: ContainerBinding, gpu: str) -> tuple[int, ...]:
        pids = []
        for pid in self._clients(gpu):
            with contextlib.suppress(CgroupUnreadable):
                if self._pod_of(pid) == binding.key.pod_uid:
                    pids.append(pid)
        return tuple(pids)

    async def release(self, binding: ContainerBinding) -> None:
        """Forget the container, and remove its namespace."""
        for using in self._using.values():
            using.pop(binding.key, None)
        self._last_seen.pop(binding.key, None)
        self._shares.come_back(binding)
        for part in binding.slices:
            known = part.gpu in self._devices.known and part.percent < WHOLE_PERCENT
            if known and self._devices.choice(part.gpu).backend is Backend.MPS3:
                assert self._shares.port is not None
                with contextlib.suppress(MpsUnreachable):  # removed with its server at the latest
                    await self._shares.port.unlimit(part.gpu, namespace_of(binding.key))

    @property
    def _has_supervisor(self) -> bool:
        """True if a supervisor was ever deployed here: its pod creates the directory."""
        return self._shares.port is not None and (self._paths.run_dir / "mps").exists()

    async def cleanup_all(self) -> None:
        """End every MPS server, its clients first, and remove its files.

        Raises:
            OSError: the supervisor exists but does not answer.
        """
        self._shares.ordering = False
        if self._shares.port is None or not self._has_supervisor:
            return
        try:
            await self._shares.port.retire()
        except MpsUnreachable as error:
            raise OSError(f"MPS servers are not ended: {error}") from error

    # -- earlier processes -----------------------------------------------------------------------

    def _remember(self, key: ContainerKey, now: Attachment) -> Attachment:
        """Record the observed processes. Unreadable is not gone: live earlier ones are added."""
        if now.state is AttachState.UNVERIFIED:
            before = self._last_seen.get(key, ())
            alive = {pid for pid in before if self._may_live(pid, key.pod_uid)}
            now = replace(now, pids=tuple(sorted(alive | set(now.pids))))
        self._last_seen[key] = now.pids
        return now

    def _may_live(self, pid: int, pod_uid: str) -> bool:
        """True if a process of a pod may still exist."""
        try:
            return self._pod_of(pid) == pod_uid
        except CgroupUnreadable:
            return True

    def _pod_of(self, pid: int) -> str | None:
        """UID of the pod that a process of the host belongs to."""
        paths = controller_paths(read_text(self._paths.proc_root / str(pid) / "cgroup") or "")
        return next((uid for path in paths.values() if (uid := pod_uid_of(path))), None)
