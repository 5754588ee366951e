# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Everything an administrator can set on the node agent, read once from the environment.

Each field is one variable: ``ULLAGE_NODE_`` + section + field, so ``paths.cdi_dir`` is
``ULLAGE_NODE_PATHS_CDI_DIR``. An unknown variable with our prefix stops the agent with its name:
a misspelt setting must never be a silent default. No other module reads the environment.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar, get_type_hints

from ullage.api.contract import HEARTBEAT_SECONDS
from ullage_node.devices.backend import Hardware

PREFIX: Final = "ULLAGE_NODE_"
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVICE_LINK: Final = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP)\w*)$")
SERVICE_URL: Final = re.compile(r"^(tcp|udp|sctp)://")
"""Both: what kubelet injects for a Service whose name begins with ``ullage-node``."""

_T = TypeVar("_T")


class SettingsError(ValueError):
    """A setting is unknown, missing or malformed; the text says which and what is allowed."""


class LogLevel(StrEnum):
    """How much the agent says."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSettings:
    """Directories and sockets of the host, seen by the agent under the same names."""

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
    """The host's cgroup tree (read only, emulated devices)."""
    proc_root: Path = Path("/proc")
    """The host's /proc."""

    @property
    def checkpoint(self) -> Path:
        """File that holds what must survive a restart of the agent."""
        return self.state_dir / "node" / "state.json"

    @property
    def steps_dir(self) -> Path:
        """Directory of the step records, one directory per container."""
        return self.run_dir / "steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """How the API server is reached."""

    server: str = ""
    """URL of the API server; empty = the cluster that the agent runs in."""
    token_file: Path = SERVICE_ACCOUNT / "token"
    """Bearer token, read again every minute."""
    ca_file: Path = SERVICE_ACCOUNT / "ca.crt"
    """Certificate authority of the API server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Where probes and metrics are served."""

    host: str = "0.0.0.0"
    """Address to listen on."""
    port: int = 8081
    """Port of /healthz, /readyz and /metrics; 0 = any free one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodSettings:
    """How often things are looked at, in seconds."""

    heartbeat_seconds: float = HEARTBEAT_SECONDS
    """Between two status writes when nothing changed."""
    socket_poll_seconds: float = 1.0
    """Between two looks at kubelet's socket."""
    kubelet_check_seconds: float = 5.0
    """Between two questions to kubelet whether it still knows our slots."""
    reconcile_seconds: float = 5.0
    """Between two comparisons with kubelet's list of pods."""
    observe_seconds: float = 1.0
    """Between two readings of the containers' processes and limits."""
    probe_seconds: float = 5.0
    """Between two health probes of the devices."""
    discover_seconds: float = 60.0
    """Between two searches for devices."""
    recovery_seconds: float = 30.0
    """How long a device must be clean before it is healthy again; flapping doubles it."""


class NoticeProvider(StrEnum):
    """Who says that the machine is about to be taken away."""

    NONE = "None"
    EC2 = "EC2"
    GCE = "GCE"
    AZURE = "Azure"
    TAINTS = "Taints"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSettings:
    """How interruption notices are heard."""

    provider: NoticeProvider = NoticeProvider.NONE
    """Whose metadata endpoint is asked; Taints and None = no one's (taints count in any case)."""
    url: str = ""
    """Base URL of the endpoint, http://host[:port]; empty = the provider's own address."""
    poll_seconds: float = 2.0
    """Between two questions; longer while the endpoint does not answer."""
    timeout_seconds: float = 1.0
    """How long one answer may take."""

    @property
    def problem(self) -> str:
        """What is wrong with the address; empty if nothing."""
        if not self.url or re.fullmatch(r"http://[^\s/?#@]+/?", self.url):
            return ""
        return (
            f"{PREFIX}NOTICES_URL={self.url!r}: expected http://host or http://host:port, because "
            "metadata endpoints speak plain HTTP on the machine itself"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole tree."""

    name: str
    """Name of the Kubernetes node (``spec.nodeName`` through the downward API)."""
    backend: Hardware = Hardware.NVIDIA
    """What the devices are."""
    max_sharers: int = 8
    """Most containers on one shared device; slots = the sum over devices."""
    context_overhead_mib: int = 512
    """Memory that a context costs beside its tenant's where a slice does not say it; the operator
    says it in every slice, from the DeviceProfile, so this counts beside an older operator only."""
    late_binding: bool = True
    """Whether the container runtime honours CDI; false = the node offers no slots."""
    log_level: LogLevel = LogLevel.INFO
    """debug, info, warning or error."""
    paths: PathSettings = field(default_factory=PathSettings)
    api: ApiSettings = field(default_factory=ApiSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    periods: PeriodSettings = field(default_factory=PeriodSettings)
    notices: NoticeSettings = field(default_factory=NoticeSettings)


def load_settings(environment: Mapping[str, str]) -> Settings:
    """Read the settings from environment variables.

    Raises:
        SettingsError: a variable with our prefix is unknown or malformed, or a needed one is
            missing; the text names all of them.
    """
    reader = _Reader(environment)
    settings = reader.read(Settings, PREFIX)
    reader.report_unknown()
    if settings is not None and not settings.name:
        reader.problems.append(f"{PREFIX}NAME is empty; set it to the node's name")
    if settings is not None and settings.max_sharers < 1:
        reader.problems.append(f"{PREFIX}MAX_SHARERS=0: at least one container must fit a device")
    if settings is not None and settings.notices.problem:
        reader.problems.append(settings.notices.problem)
    if reader.problems or settings is None:
        raise SettingsError("; ".join(reader.problems))
    return settings


class _Reader:
    """Walks the dataclass tree, remembering which variables exist and what went wrong."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.known: set[str] = set()
        self.problems: list[str] = []

    def read(self, kind: type[_T], prefix: str) -> _T | None:
        hints = get_type_hints(kind)
        values: dict[str, object] = {}
        assert is_dataclass(kind)
        for item in fields(kind):
            hint = hints[item.name]
            key = prefix + item.name.upper()
            if isinstance(hint, type) and is_dataclass(hint):
                values[item.name] = self.read(hint, f"{key}_")
                continue
            self.known.add(key)
            raw = self.environment.get(key)
            if raw is not None:
                self._parse(key, raw, hint, item.name, values)
            elif item.default is MISSING and item.default_factory is MISSING:
                self.problems.append(f"{key} is not set; it has no default")
        return None if self.problems else kind(**values)

    def _parse(
        self, key: str, raw: str, hint: type[object], name: str, values: dict[str, object]
    ) -> None:
        try:
            values[name] = _value(raw.strip(), hint)
        except ValueError as error:
            self.problems.append(f"{key}={raw!r}: {error}")

    def report_unknown(self) -> None:
        for key in sorted(self.environment):
            if not key.startswith(PREFIX) or key in self.known or self._injected(key):
                continue
            near = difflib.get_close_matches(key, self.known, n=1)
            hint = f"did you mean {near[0]}?" if near else "no such setting"
            self.problems.append(f"{key} is unknown; {hint}")

    def _injected(self, key: str) -> bool:
        return bool(SERVICE_LINK.search(key) or SERVICE_URL.match(self.environment[key]))


def _boolean(raw: str) -> bool:
    if raw.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return raw.lower() == "true"


def _whole(raw: str) -> int:
    if not raw.isdigit() or int(raw) > 65_535:
        raise ValueError("expected a whole number up to 65535")
    return int(raw)


def _seconds(raw: str) -> float:
    seconds = float(raw)
    if not 0 < seconds <= 86_400:
        raise ValueError("expected seconds between 0 and 86400")
    return seconds


def _path(raw: str) -> Path:
    if not raw.startswith("/"):
        raise ValueError("expected an absolute path")
    return Path(raw)


def _value(raw: str, hint: type[object]) -> object:
    parsers: Mapping[type[object], Callable[[str], object]] = {
        bool: _boolean,
        int: _whole,
        float: _seconds,
        Path: _path,
        str: str,
    }
    if hint in parsers:
        return parsers[hint](raw)
    assert issubclass(hint, StrEnum)
    allowed = [member.value for member in hint]
    if raw not in allowed:
        raise ValueError(f"expected one of {', '.join(allowed)}")
    return hint(raw)
