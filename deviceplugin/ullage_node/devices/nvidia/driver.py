# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Hands whole GPUs to containers and sees who uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from ullage.api.contract import Reason
from ullage_node.devices.cgroups import CgroupUnreadable, controller_paths, pod_uid_of, read_text
from ullage_node.devices.nvidia.cdi import CdiUnusable, ToolkitSpecifications, plain_edits
from ullage_node.devices.nvidia.known import NvidiaDevices, said
from ullage_node.devices.nvidia.nvml import NvmlError, NvmlStuck
from ullage_node.devices.nvidia.read import GpuProcess, read_processes
from ullage_node.devices.protocol import (
    Attachment,
    AttachState,
    BackendPaths,
    ContainerBinding,
    ContainerEdits,
    ContainerKey,
    PrepareRefused,
)


class NvidiaDriver:
    """Hands whole GPUs to containers and sees who uses them."""

    def __init__(self, devices: NvidiaDevices, paths: BackendPaths) -> None:
        self._devices = devices
        self._proc_root = paths.proc_root
        self._toolkit = ToolkitSpecifications(paths.cdi_dirs)
        self._last_seen: dict[ContainerKey, tuple[int, ...]] = {}

    @property
    def version(self) -> str:
        """Version of the kernel driver, as NVML says it."""
        return self._devices.driver_version

    def context_overhead_mib(self, gpu: str) -> int:
        """Nothing is set aside: a whole device has one tenant, who sees all of its memory."""
        return 0

    async def prepare(self, binding: ContainerBinding) -> ContainerEdits:
        """Device files and libraries for one start of the container.

        Raises:
            PrepareRefused: an unknown device, a share of one, or a broken toolkit specification.
        """
        for part in binding.slices:
            if part.percent != 100:
                raise PrepareRefused(
                    Reason.MODE_UNSUPPORTED,
                    f"{part.percent} % of {part.gpu}: shares need MPS, which this agent does not "
                    "drive yet; ask for mode Exclusive",
                )
            if part.gpu not in self._devices.known:
                raise PrepareRefused(Reason.DEVICE_LOST, f"{part.gpu} was never seen on this node")
        devices = [self._devices.known[part.gpu] for part in binding.slices]
        try:
            return self._toolkit.edits(devices) or plain_edits(devices)
        except CdiUnusable as error:
            raise PrepareRefused(Reason.CDI_UNAVAILABLE, str(error)) from error

    async def observe(
        self, bindings: Sequence[ContainerBinding]
    ) -> Mapping[ContainerKey, Attachment]:
        """Who uses which GPU, by NVML's list of processes and their cgroups."""
        uuids = sorted(self._devices.known)
        try:
            usage = await self._devices.thread.call(lambda api: read_processes(api, uuids))
            owners = {pid: self._pod_of(pid) for pid in {p.pid for p in usage.processes}}
        except (NvmlError, NvmlStuck, CgroupUnreadable) as error:
            unread = Attachment(state=AttachState.UNVERIFIED, message=said(error))
            found = {binding.key: unread for binding in bindings}
            return {key: self._remember(key, attachment) for key, attachment in found.items()}
        never_seen = {
            part.gpu: f"{part.gpu} was never seen on this node"
            for binding in bindings
            for part in binding.slices
            if part.gpu not in self._devices.known
        }
        blind = never_seen | dict(usage.unread)
        found = {
            binding.key: _attachment(
                binding, bindings, processes=usage.processes, owners=owners, blind=blind
            )
            for binding in bindings
        }
        return {key: self._remember(key, attachment) for key, attachment in found.items()}

    async def release(self, binding: ContainerBinding) -> None:
        """Forget who was seen; nothing else of a container is kept."""
        self._last_seen.pop(binding.key, None)

    async def cleanup_all(self) -> None:
        """Nothing was put on the node."""

    def _remember(self, key: ContainerKey, now: Attachment) -> Attachment:
        """Keep who was seen. What cannot be read now is not gone: who still lives is added."""
        if now.state is AttachState.UNVERIFIED:
            before = self._last_seen.get(key, ())
            alive = {pid for pid in before if self._may_live(pid, key.pod_uid)}
            now = replace(now, pids=tuple(sorted(alive | set(now.pids))))
        self._last_seen[key] = now.pids
        return now

    def _may_live(self, pid: int, pod_uid: str) -> bool:
        """Whether a process of a pod cannot be ruled out to be still there."""
        try:
            return self._pod_of(pid) == pod_uid
        except CgroupUnreadable:
            return True

    def _pod_of(self, pid: int) -> str | None:
        """UID of the pod that a process of the host belongs to."""
        paths = controller_paths(read_text(self._proc_root / str(pid) / "cgroup") or "")
        return next((uid for path in paths.values() if (uid := pod_uid_of(path))), None)


def _attachment(
    binding: ContainerBinding,
    bindings: Sequence[ContainerBinding],
    *,
    processes: Sequence[GpuProcess],
    owners: Mapping[int, str | None],
    blind: Mapping[str, str],
) -> Attachment:
    """What one container does on the GPUs: containers of one pod are told apart by their GPUs."""
    pod_uid = binding.key.pod_uid
    own = {part.gpu for part in binding.slices}
    granted = {p.gpu for other in bindings if other.key.pod_uid == pod_uid for p in other.slices}
    theirs = [process for process in processes if owners[process.pid] == pod_uid]
    used = [process for process in theirs if process.gpu in own or process.gpu not in granted]
    state, reason, message = _judge_use({process.gpu for process in used}, own, blind)
    return Attachment(
        state=state,
        pids=tuple(sorted({process.pid for process in used})),
        memory_used_mib=sum(process.memory_mib for process in used),
        reason=reason,
        message=message,
    )


def _judge_use(
    used: Set[str], own: Set[str], blind: Mapping[str, str]
) -> tuple[AttachState, Reason | None, str]:
    """What the use of these GPUs means for a container that was given ``own``."""
    if astray := sorted(used - own):
        text = (
            f"uses {', '.join(astray)}, which the pod was not given; is it privileged, or does it "
            "set NVIDIA_VISIBLE_DEVICES?"
        )
        return AttachState.UNENFORCED, Reason.UNENFORCED, text
    if unseen := sorted(own & blind.keys()):
        return AttachState.UNVERIFIED, Reason.DEVICE_LOST, blind[unseen[0]]
    return (AttachState.ENFORCED if used else AttachState.ABSENT), None, ""
