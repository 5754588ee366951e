# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of the operator, read once from the environment.

Every field is one variable ``ULLAGE_<SECTION>_<FIELD>`` and one value of the chart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ullage.process.environment import LogLevel, read_settings

PREFIX: Final = "ULLAGE_"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """Leader election."""

    namespace: str = "ullage-system"
    """Namespace of the Lease."""
    owner: str = ""
    """Deployment of the operator in that namespace: the Lease is deleted after it. Empty = it
    stays."""
    duration_seconds: float = 12.0
    """A candidate takes over after the Lease stood unchanged this long."""
    renew_deadline_seconds: float = 8.0
    """A leader that could not renew for this long stops writing and stands by."""
    period_seconds: float = 2.0
    """Time between renewals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideTimes:
    """Clocks of the decision."""

    deadline_seconds: float = 5.0
    """A decision that takes longer is abandoned and the last good plan stands."""
    reserve_timeout_seconds: float = 30.0
    """A gang not acknowledged by its nodes in this time is planned again."""
    schedule_timeout_seconds: float = 60.0
    """An ungated pod that kube-scheduler did not bind in this time is planned again."""
    start_timeout_seconds: float = 60.0
    """A bound pod whose container did not start in this time is planned again."""
    restart_backoff_seconds: float = 10.0
    """First wait before a failed gang starts again; doubles each time."""
    restart_backoff_max_seconds: float = 300.0
    """Longest such wait."""
    preemption_backoff_seconds: float = 10.0
    """First wait before a preempted job competes for room again; doubles with each preemption in a
    row."""
    preemption_backoff_max_seconds: float = 300.0
    """Longest such wait; a job that was not preempted for twice as long begins with the first
    wait again."""
    reserve_first: bool = False
    """Reserve slices of TrainingJobs before their pods exist, where there is room, and create these
    pods without a scheduling gate: one write less for each pod. Alpha."""
    pre_stop_sleep_seconds: int = 5
    """Sleep given to serving pods before SIGTERM, so that endpoints are withdrawn first."""
    order_image: str = ""
    """Image of the placeholder pods that make an autoscaler buy nodes of CapacityPools; it needs a
    Python interpreter. Empty = no node is ever ordered: pools have the nodes they have."""
    lead_image: str = ""
    """Image of the pods that lead jobs in tiers; it needs the packages ullage_run and ullage, as
    the operator's own has. Empty = jobs in tiers do not start."""
    router_image: str = ""
    """Image of the routers of services (spec.batching); it needs the packages ullage_run and ullage
    with the extra router, as the operator's own has. Empty = no service gets a router."""
    seed: int = 0
    """Seed of everything random in a decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerTimes:
    """Debouncing of decisions."""

    idle_seconds: float = 0.05
    """A decision starts when nothing changed for this long ..."""
    max_seconds: float = 0.5
    """... or this long after the first change."""
    resync_seconds: float = 30.0
    """A decision is made at least this often."""
    rest_max_seconds: float = 5.0
    """Longest pause after a decision, which is twice as long as the decision took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnSettings:
    """Learning of slowdowns, in the background."""

    every_seconds: float = 5.0
    """New rows of a type of device are taken in at most this often."""
    fit_every_seconds: float = 1800.0
    """The model of a type is fitted again when rows are new and the last fit is this old ..."""
    fit_rows: int = 200
    """... or when this many rows are newer than it."""
    deadline_seconds: float = 600.0
    """A fit that takes longer is given up and the last good model stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """Limits of what is sent to the API server."""

    per_second: float = 50.0
    """Writes a second, on average."""
    in_flight: int = 20
    """Writes under way at once."""
    passing_seconds: float = 3.0
    """A TrainingJob's status that only says that things move (reserving, starting) waits this long
    for the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSettings:
    """Prices of CapacityPools."""

    period_seconds: float = 300.0
    """A price source that answers is asked this often."""
    timeout_seconds: float = 10.0
    """A price source that does not answer in this time is asked again later, ever less often."""
    file_root: str = "/etc/ullage/prices"
    """Folder below which price sources of type File read; nothing outside it is read."""
    currency: str = "USD"
    """Currency of all prices (ISO 4217), the label of metrics that tell money. AWS, Azure and GCP
    answer in USD."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The operator's own endpoints."""

    port: int = 8080
    """Port of /healthz and /readyz, and of /metrics unless `metrics_port` serves it."""
    metrics_port: int = 0
    """Port of /metrics over TLS, for bearer tokens that may `get` the URL; 0 = /metrics is served
    on `port`, without TLS, to all."""
    certificate_dir: str = "/etc/ullage/metrics"
    """Folder of its certificate, `tls.crt` and `tls.key`; read again when they change."""
    web_port: int = 0
    """Port of the read-only web page, on the pod's loopback alone (`kubectl port-forward`); 0 =
    none."""
    web_proxy: bool = False
    """The web page listens on all addresses, for the API server's proxy; it authenticates no one.
    """
    admission_port: int = 0
    """Port where the API server asks for warnings about our kinds, over TLS; 0 = none are given."""
    admission_dir: str = "/etc/ullage/admission"
    """Folder of its certificate, `tls.crt` and `tls.key`; read again when they change."""
    debug_port: int = 8082
    """Port of /debug/snapshot, on the pod's loopback alone (`kubectl port-forward`); 0 = none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of the operator."""

    kubeconfig: str = ""
    """Path of a kubeconfig; empty = the pod's service account."""
    identity: str = ""
    """Name of this replica in the Lease; empty = the host name."""
    log_level: LogLevel = LogLevel.INFO
    """debug, info, warning or error."""
    lease: LeaseSettings = field(default_factory=LeaseSettings)
    decide: DecideTimes = field(default_factory=DecideTimes)
    trigger: TriggerTimes = field(default_factory=TriggerTimes)
    learn: LearnSettings = field(default_factory=LearnSettings)
    write: WriteSettings = field(default_factory=WriteSettings)
    price: PriceSettings = field(default_factory=PriceSettings)
    http: HttpSettings = field(default_factory=HttpSettings)


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Read the settings.

    Raises:
        SettingsError: a variable with our prefix is unknown, or a value cannot be read.
    """
    return read_settings(Settings, PREFIX, environment, _problems)


def _problems(settings: Settings) -> Iterator[str]:
    """Combinations of values that cannot work."""
    lease = settings.lease
    if not lease.period_seconds < lease.renew_deadline_seconds < lease.duration_seconds:
        yield (
            "lease times must grow: ULLAGE_LEASE_PERIOD_SECONDS < "
            "ULLAGE_LEASE_RENEW_DEADLINE_SECONDS < ULLAGE_LEASE_DURATION_SECONDS"
        )
    if settings.write.per_second <= 0 or settings.write.in_flight < 1:
        yield "ULLAGE_WRITE_PER_SECOND and ULLAGE_WRITE_IN_FLIGHT must be positive"
    learn = settings.learn
    if min(learn.every_seconds, learn.fit_every_seconds, learn.deadline_seconds) <= 0:
        yield "the seconds of ULLAGE_LEARN_* must be positive"
    if learn.fit_rows < 1:
        yield "ULLAGE_LEARN_FIT_ROWS must be at least 1"
    if settings.price.period_seconds < 10 or settings.price.timeout_seconds <= 0:
        yield (
            "ULLAGE_PRICE_PERIOD_SECONDS must be at least 10 and ULLAGE_PRICE_TIMEOUT_SECONDS "
            "positive"
        )
    if not re.fullmatch("[A-Z]{3}", settings.price.currency):
        yield "ULLAGE_PRICE_CURRENCY must be three capital letters, as USD"
