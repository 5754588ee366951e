# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Checks of the first hour of a node with GPUs, in the order in which it would fail.

Pure over the backend's existing state. Unobserved is not passed: before a container ran, checks
that need one are unconfirmed. Texts hold no counters, so that they change only with the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from ullage.api.checks import CheckState, NodeCheck
from ullage.api.slices import Proof
from ullage_node.devices.nvidia.choice import MPS_BACKENDS, OLDEST_DRIVER, Driver, SharingChoice
from ullage_node.devices.nvidia.read import NvidiaDevice
from ullage_node.model.devices import Attachment, AttachState
from ullage_node.mps.control import ORDINAL
from ullage_node.mps.records import Installed, MpsServer

_OK, _FAILED, _OPEN = CheckState.OK, CheckState.FAILED, CheckState.UNCONFIRMED
_PODS: Final = "kubectl get pods --all-namespaces --selector app.kubernetes.io/component="
_SEE_POD: Final = f"the log of this node's pod: {_PODS}mps --output wide"
_SEE_LOGS: Final = f"{_SEE_POD}; /run/ullage/mps/<n>/log on the node"
_ASK_WHY: Final = "kubectl ullage status -A, then of its workload: kubectl ullage why NAME"
_GENERATE: Final = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstHour:
    """State of the backend at one moment.

    ``mps`` = the node is to have a supervisor, ``mps_problem`` says why its report is missing.
    ``unseen`` says why processes are not seen, "" = they are, ``None`` = not checked yet.
    ``unable`` says why cuda-checkpoint suspends no program, "" = it does, ``None`` = it is off;
    ``suspends`` are the devices where it may. ``shares`` and ``wholes`` are the newest readings of
    containers that ran. ``toolkit`` = the container toolkit's specification lists the devices,
    ``toolkit_problem`` why it is unusable, ``toolkit_remedy`` how to fix that; ``toolkit_remarks``
    name the dropped fields.
    """

    driver: Driver
    devices: Mapping[str, NvidiaDevice]
    choices: Mapping[str, SharingChoice]
    mps: bool
    mps_problem: str = ""
    installed: Installed | None = None
    servers: Mapping[str, MpsServer] = field(default_factory=dict)
    unseen: str | None = None
    shares: Sequence[Attachment] = ()
    wholes: Sequence[Attachment] = ()
    unable: str | None = None
    suspends: Sequence[str] = ()
    toolkit: bool = False
    toolkit_problem: str = ""
    toolkit_remedy: str = ""
    toolkit_remarks: Sequence[str] = ()

    @property
    def shared(self) -> tuple[str, ...]:
        """Devices that MPS shares."""
        return tuple(
            uuid for uuid, choice in sorted(self.choices.items()) if choice.backend in MPS_BACKENDS
        )


def checks_of(hour: FirstHour) -> tuple[NodeCheck, ...]:
    """All checks."""
    return tuple(
        chain(
            (_driver(hour), _program(hour), _processes(hour), _wholes(hour)),
            _sharing(hour),
            _mig(hour),
            _checkpoint(hour),
            (_toolkit(hour),),
        )
    )


def _sharing(hour: FirstHour) -> tuple[NodeCheck, ...]:
    if not hour.shared:
        return ()
    return (_servers(hour), _shares(hour), _memory(hour), _log(hour), _users(hour))


def _driver(hour: FirstHour) -> NodeCheck:
    driver = hour.driver
    if not driver.branch:
        text = f"NVML says the version {driver.version!r}" if driver.version else "NVML is silent"
        return _check("Driver", _FAILED, text, _driver_line("install"))
    versions = f"{driver.version}, CUDA {driver.cuda // 1000}.{driver.cuda % 1000 // 10} (NVML)"
    if driver.branch < OLDEST_DRIVER:
        return _check("Driver", _FAILED, versions, _driver_line("update"))
    return _check("Driver", _OK, versions)


def _driver_line(verb: str) -> str:
    return (
        f"{verb} the driver ({OLDEST_DRIVER} or newer); nvidia-smi shows it. GPU Operator: "
        "kubectl label node NODE nvidia.com/gpu.deploy.driver=true --overwrite"
    )


def _program(hour: FirstHour) -> NodeCheck:
    name = "MPSProgram"
    if not hour.mps:
        return _check(
            name, _OK, "no supervisor was ever here: GPUs are given whole (node.mps.enabled)"
        )
    problem = hour.mps_problem or (hour.installed.problem if hour.installed else "")
    if problem:
        return _check(name, _FAILED, problem, _SEE_POD)
    if hour.installed is None:
        return _check(name, _OPEN, "the supervisor was not asked yet")
    protocols = ", ".join(str(protocol) for protocol in hour.installed.protocols)
    return _check(name, _OK, f"there, for driver {hour.installed.version}: protocol {protocols}")


def _processes(hour: FirstHour) -> NodeCheck:
    name = "HostProcesses"
    if hour.unseen is None:
        return _check(name, _OPEN, "not checked yet")
    if hour.unseen:
        remedy = f"{_PODS}processes --output wide; their hostPID must be true"
        return _check(name, _FAILED, hour.unseen, remedy)
    return _check(name, _OK, "the reader of processes counts them as the host does")


def _wholes(hour: FirstHour) -> NodeCheck:
    name = "WholeGPU"
    if bad := _escaped(hour.wholes):
        return _check(name, _FAILED, bad.message, _ASK_WHY)
    if any(seen.state is AttachState.ENFORCED for seen in hour.wholes):
        return _check(name, _OK, "processes of a container with a whole GPU are seen on it")
    return _check(name, _OPEN, "no container has used a whole GPU yet", "run one for a minute")


def _servers(hour: FirstHour) -> NodeCheck:
    name = "MPSServers"
    for uuid in hour.shared:
        server = hour.servers.get(uuid)
        if server is None or not server.ready:
            why = f"{server.state.value}: {server.why}" if server else "not started"
            # A GPU granted whole has no server for that time.
            state = _FAILED if server else _OPEN
            return _check(name, state, f"{uuid}: {why}", _SEE_LOGS)
    return _check(name, _OK, "every shared GPU has a server that takes clients")


def _shares(hour: FirstHour) -> NodeCheck:
    name = "ShareProof"
    if bad := _escaped(hour.shares):
        return _check(name, _FAILED, bad.message, _ASK_WHY)
    proofs = {seen.proof for seen in hour.shares if seen.state is AttachState.ENFORCED}
    if not proofs:
        remedy = "run two containers with shares on one GPU for a minute"
        return _check(name, _OPEN, "no share has run yet", remedy)
    if proofs <= {Proof.SERVER_LIST, None}:
        text = "the server lists the clients; nothing shows what they began with"
        return _check(
            name, _OPEN, text, "the pod of the MPS supervisor must be privileged, with hostPID"
        )
    words = ", ".join(sorted(proof.value for proof in proofs if proof))
    return _check(name, _OK, f"proven by {words}")


def _memory(hour: FirstHour) -> NodeCheck:
    name = "MemoryLimit"
    keys = {server.memory_key for server in _serving(hour) if server.protocol == 2}
    if not keys:
        return _check(name, _OPEN, "no server of protocol 2 runs: namespaces hold the limits")
    if "" in keys:
        text = "a daemon repeats no memory limit; clients get theirs by ordinal"
        remedy = "compare slices[].memoryUsedMiB of a greedy container with its memory"
        return _check(name, _OPEN, text, remedy)
    by = "ordinal" if keys == {ORDINAL} else "UUID"
    return _check(name, _OK, f"the daemons repeat a limit by {by}, and clients get theirs so")


def _log(hour: FirstHour) -> NodeCheck:
    name = "DaemonLog"
    serving = _serving(hour)
    if not serving:
        return _check(name, _OPEN, "no daemon runs")
    logs = sorted({server.log for server in serving})
    if logs[0] == "":
        text = "a daemon writes nowhere where health reads, so a hanging queue stays unnoticed"
        return _check(name, _FAILED, text, _SEE_LOGS)
    return _check(name, _OK, f"health reads {', '.join(logs)}")


def _users(hour: FirstHour) -> NodeCheck:
    name = "MixedUsers"
    serving = _serving(hour)
    if not serving:
        return _check(name, _OPEN, "no daemon runs")
    if not all(server.multi_user for server in serving):
        text = "a daemon refuses -multiuser-server: clients of one uid at a time"
        return _check(
            name, _FAILED, text, f"{_driver_line('update')}; or give all tenants one runAsUser"
        )
    text = "the daemons were started for clients of every uid"
    return _check(name, _OPEN, text, "run two containers with different runAsUser on one GPU")


def _mig(hour: FirstHour) -> tuple[NodeCheck, ...]:
    name = "MIG"
    if blind := sorted(device.uuid for device in hour.devices.values() if device.mig):
        text = f"no MIG device of {blind[0]} is seen, which is in MIG mode"
        remedy = "nvidia-smi mig -cgi PROFILES -C; node.mig.enabled=true; or turn MIG off"
        return (_check(name, _FAILED, text, remedy),)
    if any(device.parent for device in hour.devices.values()):
        return (_check(name, _OK, "MIG devices are seen and given whole"),)
    return ()


def _checkpoint(hour: FirstHour) -> tuple[NodeCheck, ...]:
    name = "CudaCheckpoint"
    if hour.unable is None:
        return ()
    if hour.unable:
        remedy = f"node.checkpoint.program; the log of {_PODS}processes"
        return (_check(name, _FAILED, hour.unable, remedy),)
    if not hour.suspends:
        text = "it runs, but no GPU of this node is shared, and MIG devices suspend nothing"
        return (_check(name, _OPEN, text, "leave switching out, or share a GPU"),)
    text = "it runs; nothing shows here that programs come back from it, beside MPS above all"
    remedy = "suspend one of each kind: Events LaneSuspended and LaneResumed of its pod"
    return (_check(name, _OPEN, text, remedy),)


def _toolkit(hour: FirstHour) -> NodeCheck:
    name = "ContainerToolkit"
    if hour.toolkit_problem:
        return _check(name, _FAILED, hour.toolkit_problem, hour.toolkit_remedy or _GENERATE)
    if hour.toolkit:
        remarks = ("its CDI specification knows every GPU of this node", *hour.toolkit_remarks)
        return _check(name, _OK, "; ".join(remarks))
    text = "no CDI specification knows every GPU: containers get device files alone"
    remedy = f"{_GENERATE}, or runtimeClassName: nvidia"
    return _check(name, _OPEN, "; ".join((text, *hour.toolkit_remarks)), remedy)


def _serving(hour: FirstHour) -> tuple[MpsServer, ...]:
    servers = (hour.servers.get(uuid) for uuid in hour.shared)
    return tuple(server for server in servers if server is not None and server.ready)


def _escaped(seen: Sequence[Attachment]) -> Attachment | None:
    return next(
        (attachment for attachment in seen if attachment.state is AttachState.UNENFORCED), None
    )


def _check(name: str, state: CheckState, message: str, remedy: str = "") -> NodeCheck:
    return NodeCheck(name=name, state=state, message=message, remedy="" if state is _OK else remedy)
