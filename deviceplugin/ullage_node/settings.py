# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""All settings of the node agent, read once from the environment.

Each field is one variable: ``ULLAGE_NODE_`` + section + field, so ``paths.cdi_dir`` is
``ULLAGE_NODE_PATHS_CDI_DIR``. No other module reads the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Final

from ullage.api.times import HEARTBEAT_SECONDS
from ullage.process.environment import LogLevel, read_settings
from ullage_node.devices.backend import Hardware
from ullage_node.times import DAY_S, USAGE_WINDOW_LEAST_S, USAGE_WINDOW_S

PREFIX: Final = "ULLAGE_NODE_"
NUMBER_MOST: Final = 65_535
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSettings:
    """Directories and sockets of the host, seen by the agent at the same paths."""

    device_plugin_dir: Path = Path("/var/lib/kubelet/device-plugins")
    """Where kubelet listens and our own socket is made; a constant of kubelet."""
    pod_resources_socket: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """kubelet's pod-resources API."""
    cdi_dir: Path = Path("/var/run/cdi")
    """Where the container runtime reads CDI files."""
    state_dir: Path = Path("/var/lib/ullage")
    """Survives reboots: checkpoint, hook, slot files."""
    run_dir: Path = Path("/run/ullage")
    """Gone after a reboot: step records, MPS pipes."""
    cgroup_root: Path = Path("/sys/fs/cgroup")
    """The host's cgroup tree (read only)."""
    proc_root: Path = Path("/proc")
    """The host's /proc."""
    sys_root: Path = Path("/sys")
    """The kernel's /sys, for names of block devices."""

    @property
    def checkpoint(self) -> Path:
        """File of the state that survives a restart of the agent."""
        return self.state_dir / "node" / "state.json"

    @property
    def steps_dir(self) -> Path:
        """Directory of the step records, one directory per container."""
        return self.run_dir / "steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """Access to the API server."""

    server: str = ""
    """URL of the API server; empty = the cluster that the agent runs in."""
    token_file: Path = SERVICE_ACCOUNT / "token"
    """Bearer token, read again every minute."""
    ca_file: Path = SERVICE_ACCOUNT / "ca.crt"
    """Certificate authority of the API server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHttpSettings:
    """Address of probes and metrics."""

    host: str = "0.0.0.0"
    """Address to listen on."""
    port: int = 8081
    """Port of /healthz and /readyz, and of /metrics unless `metrics_port` serves it; 0 = any free
    one."""
    metrics_port: int = 0
    """Port of /metrics over TLS, for bearer tokens that may `get` the URL; 0 = /metrics is served
    on `port`, without TLS, to all."""
    certificate_dir: Path = Path("/etc/ullage/metrics")
    """Directory of its certificate, `tls.crt` and `tls.key`; read again when they change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodSettings:
    """Periods of the periodic work, in seconds."""

    heartbeat_seconds: float = HEARTBEAT_SECONDS
    """Interval of status writes when nothing changed."""
    starts_seconds: float = 1.0
    """Longest delay of a status that only reports the progress of starting containers; a burst of
    them is reported together."""
    socket_poll_seconds: float = 1.0
    """Interval of checks of kubelet's socket."""
    kubelet_check_seconds: float = 5.0
    """Interval of checks that kubelet still knows the slots."""
    reconcile_seconds: float = 5.0
    """Interval of comparisons with kubelet's list of pods."""
    observe_seconds: float = 1.0
    """Interval of readings of the containers' processes and limits."""
    probe_seconds: float = 5.0
    """Interval of health probes of the devices."""
    discover_seconds: float = 60.0
    """Interval of searches for devices."""
    recovery_seconds: float = 30.0
    """Time without faults after which a device is healthy again; flapping doubles it."""
    usage_window_seconds: float = USAGE_WINDOW_S
    """Length of a window of device time, 10 or more; a finding on unused time needs two of them,
    one after the other. Shorter ones are for tests: a pause of a minute is no waste."""


class NoticeProvider(StrEnum):
    """Sources of the notice of an imminent interruption of the machine."""

    NONE = "None"
    EC2 = "EC2"
    GCE = "GCE"
    AZURE = "Azure"
    TAINTS = "Taints"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSettings:
    """Reading of interruption notices."""

    provider: NoticeProvider = NoticeProvider.NONE
    """Provider whose metadata endpoint is read; Taints and None = none (taints always count)."""
    url: str = ""
    """Base URL of the endpoint, http://host[:port]; empty = the provider's own address."""
    poll_seconds: float = 2.0
    """Interval of requests; longer while the endpoint does not answer."""
    timeout_seconds: float = 1.0
    """Timeout of a request."""

    @property
    def problem(self) -> str:
        """The error in the address; empty = none."""
        if not self.url or re.fullmatch(r"http://[^\s/?#@]+/?", self.url):
            return ""
        return (
            f"{PREFIX}NOTICES_URL={self.url!r}: expected http://host or http://host:port, because "
            "metadata endpoints speak plain HTTP on the machine itself"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    """Suspension of programs that share a lane (`switching: Checkpoint`)."""

    enabled: bool = False
    """Suspend programs on this node; its devices then report that they support it."""
    program: Path = Path("/usr/local/bin/cuda-checkpoint")
    """NVIDIA's cuda-checkpoint, as the process sees it that reads the host's processes."""
    idle_seconds: float = 5.0
    """Idle time after which a program makes room for a waiting one."""
    busy_seconds: float = 60.0
    """Wait after which programs that work make room, too."""
    resident_seconds: float = 10.0
    """Least time of a program on the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigSettings:
    """GPUs in MIG mode."""

    enabled: bool = False
    """Let the process that reads the host's processes read MIG devices for the agent, too; else the
    agent shows those that it sees itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The whole tree."""

    name: str
    """Name of the Kubernetes node (``spec.nodeName`` through the downward API)."""
    backend: Hardware = Hardware.NVIDIA
    """Kind of the devices."""
    max_sharers: int = 8
    """Most containers on one shared device; slots = the sum over devices."""
    context_overhead_mib: int = 512
    """Memory that a context costs beside its tenant's where a slice does not say it; the operator
    says it in every slice, from the DeviceProfile, so this counts beside an older operator only."""
    late_binding: bool = True
    """The container runtime honours CDI; false = the node offers no slots."""
    log_level: LogLevel = LogLevel.INFO
    """debug, info, warning or error."""
    paths: PathSettings = field(default_factory=PathSettings)
    api: ApiSettings = field(default_factory=ApiSettings)
    http: AgentHttpSettings = field(default_factory=AgentHttpSettings)
    periods: PeriodSettings = field(default_factory=PeriodSettings)
    notices: NoticeSettings = field(default_factory=NoticeSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    mig: MigSettings = field(default_factory=MigSettings)


def load_settings(environment: Mapping[str, str]) -> AgentSettings:
    """Read the settings from environment variables.

    Raises:
        SettingsError: a variable with our prefix is unknown or malformed, or a required one is
            missing; the text names all of them.
    """
    return read_settings(AgentSettings, PREFIX, environment, _problems)


def _problems(settings: AgentSettings) -> Iterator[str]:
    """Texts of invalid settings."""
    if not settings.name:
        yield f"{PREFIX}NAME is empty; set it to the node's name"
    if not 0 < settings.max_sharers <= NUMBER_MOST:
        yield f"{PREFIX}MAX_SHARERS: at least one container must fit a device, at most 65535"
    for name, number in (
        ("CONTEXT_OVERHEAD_MIB", settings.context_overhead_mib),
        ("HTTP_PORT", settings.http.port),
    ):
        if number > NUMBER_MOST:
            yield f"{PREFIX}{name}={number}: expected at most {NUMBER_MOST}"
    for section, times in (
        ("PERIODS", settings.periods),
        ("NOTICES", settings.notices),
        ("CHECKPOINT", settings.checkpoint),
    ):
        for item in fields(times):
            seconds = getattr(times, item.name)
            if isinstance(seconds, float) and not 0 < seconds <= DAY_S:
                name = f"{PREFIX}{section}_{item.name.upper()}"
                yield f"{name}={seconds:g}: expected seconds between 0 and {DAY_S}"
    if settings.periods.usage_window_seconds < USAGE_WINDOW_LEAST_S:
        yield (
            f"{PREFIX}PERIODS_USAGE_WINDOW_SECONDS={settings.periods.usage_window_seconds:g}:"
            f" expected {USAGE_WINDOW_LEAST_S:g} seconds or more"
        )
    if settings.notices.problem:
        yield settings.notices.problem
