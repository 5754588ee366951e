# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Measured parts of profiles as JSON, both ways.

As for workloads, what was written reads back equal: else the operator would write for ever.
Numbers are rounded to six significant digits, times to seconds, lists get one order. A number that
is not finite or below 0 is an error, from any source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ullage.api.codec import derived, rows
from ullage.api.contract import WireError, bounded, flag, objects, section, text, whole
from ullage.api.numbers import MOST
from ullage.api.numbers import needed as needed
from ullage.api.numbers import number as number
from ullage.api.numbers import six_digits as six_digits
from ullage.api.readers import count_of
from ullage.api.times import rfc3339, seconds
from ullage.api.wire_fields import KEPT, Embedded, Kind, Listed
from ullage.cluster.codecs.objects import CONDITIONS, optional_text, own_conditions, within
from ullage.cluster.records.profile import (
    MOST_PARAMETER,
    RATIO,
    DeviceModel,
    ProfileStatus,
    SoloEntry,
    Source,
    StepRow,
)
from ullage.cluster.records.status import Condition
from ullage.cluster.values.quantiles import percentile_of, quantile_of
from ullage.engines.admission.records import Fingerprint, Partner
from ullage.ports import JsonObject

INT32_MAX: Final = 2**31 - 1
MIB: Final = 2**20

COLUMNS: Final[Mapping[str, str]] = {
    "dramUtil": "dram",
    "tensorUtil": "tensor",
    "fp32Util": "fp32",
    "fp16Util": "fp16",
    "fp64Util": "fp64",
    "occupancy": "occupancy",
    "kernelIdleFraction": "kernel_idle",
    "graphFraction": "graph",
    "dutyCycle": "duty_cycle",
    "cpuUtil": "cpu_cores",
    "powerWatts": "power_watts",
    "launchesPerSecond": "launches_per_s",
    "pcieTxBytesPerSecond": "pcie_tx_bytes_per_s",
    "pcieRxBytesPerSecond": "pcie_rx_bytes_per_s",
}
"""Columns of a solo row -> attributes of the fingerprint; ``smUtil`` and memory apart."""

_MOST: Final[Mapping[str, float]] = {
    **dict.fromkeys(
        (
            *("smUtil", "dramUtil", "tensorUtil", "fp32Util", "fp16Util", "fp64Util"),
            *("occupancy", "kernelIdleFraction", "graphFraction", "dutyCycle"),
        ),
        1.0,
    ),
    "cpuUtil": RATIO,
}
"""Largest number of a column, where that is less than of others."""
QUANTILES: Final[Mapping[str, float]] = {
    "latencyP50Seconds": 0.5,
    "latencyP90Seconds": 0.9,
    "latencyP99Seconds": 0.99,
    "latencyP999Seconds": 0.999,
}


def solo_from_wire(raw: JsonObject) -> SoloEntry:
    """One row of behaviour alone, declared or measured.

    Raises:
        WireError: a column is missing or of the wrong type.
    """
    sm = number(raw, "smUtil", 1.0)
    peak = number(raw, "peakMemoryBytes")
    columns = {
        attribute: number(raw, name, _MOST.get(name, MOST)) for name, attribute in COLUMNS.items()
    }
    quantiles = ((quantile, number(raw, name)) for name, quantile in QUANTILES.items())
    return SoloEntry(
        device=text(raw, "device"),
        share=bounded(raw, "share", 1, 100),
        sm_util=sm or 0.0,
        steps_per_second=number(raw, "stepsPerSecond") or 0.0,
        fingerprint=Fingerprint(
            **columns, sm=sm, peak_memory_mib=None if peak is None else peak / MIB
        ),
        latency=tuple((quantile, value) for quantile, value in quantiles if value is not None),
        measured=_measured(raw),
        requests_per_s=number(raw, "requestsPerSecond"),
        cs2=number(raw, "cs2", RATIO),
        counter=optional_text(raw, "counter"),
        samples=count_of(raw, "samples"),
    )


def _measured(raw: JsonObject) -> tuple[tuple[float, float], ...]:
    with within("latency"):
        return tuple(
            sorted(
                (quantile_of(text(one, "percentile")), needed(one, "seconds"))
                for one in objects(raw, "latency")
            )
        )


def solo_to_wire(row: SoloEntry) -> dict[str, object]:
    """One measured row as the API stores it."""
    print_ = row.fingerprint
    peak = print_.peak_memory_mib
    values: dict[str, float | None] = {
        "smUtil": print_.sm,
        "stepsPerSecond": row.steps_per_second or None,
        "cs2": row.cs2,
        "requestsPerSecond": row.requests_per_s,
        "peakMemoryBytes": None if peak is None else peak * MIB,
        **{name: getattr(print_, attribute) for name, attribute in COLUMNS.items()},
    }
    known = dict(row.latency)
    values |= {name: known.get(quantile) for name, quantile in QUANTILES.items()}
    body: dict[str, object] = {"device": row.device, "share": row.share, "samples": row.samples}
    body |= {"counter": row.counter} if row.counter else {}
    if row.measured:
        body["latency"] = [
            {"percentile": percentile_of(quantile), "seconds": six_digits(value)}
            for quantile, value in row.measured
        ]
    return body | {name: six_digits(one) for name, one in values.items() if one is not None}


def step_from_wire(raw: JsonObject) -> StepRow:
    """One window.

    Raises:
        WireError: a column is missing or of the wrong type.
    """
    partners = sorted(objects(raw, "partners"), key=lambda one: whole(one, "index", 0))
    return StepRow(
        id=text(raw, "id"),
        accelerator=text(raw, "accelerator"),
        share=bounded(raw, "share", 1, 100),
        partners=tuple(
            Partner(workload_class=text(one, "class"), percent=bounded(one, "share", 0, INT32_MAX))
            for one in partners
        ),
        step_s=needed(raw, "stepSeconds"),
        slowdown=number(raw, "slowdown", RATIO),
        max_slowdown=number(raw, "maxSlowdown", RATIO),
        requests_per_s=number(raw, "requestsPerSecond"),
        latency_s=number(raw, "latencySeconds"),
        quantile=quantile_of(text(raw, "percentile")) if raw.get("percentile") else None,
        at_s=seconds(raw.get("at"), "at"),
        source=_source(raw),
        counterfactual=flag(raw, "counterfactual"),
        probation=flag(raw, "probation"),
        violated=flag(raw, "violated"),
    )


def _source(raw: JsonObject) -> Source:
    try:
        return Source(text(raw, "source", Source.MEASURED))
    except ValueError as error:
        raise WireError(f"source: {error}") from error


def step_to_wire(row: StepRow) -> dict[str, object]:
    """One window as the API stores it."""
    body: dict[str, object] = {
        "id": row.id,
        "accelerator": row.accelerator,
        "share": row.share,
        "stepSeconds": six_digits(row.step_s),
        "at": rfc3339(row.at_s),
        "source": row.source.value,
    }
    numbers = {
        "slowdown": row.slowdown,
        "maxSlowdown": row.max_slowdown,
        "requestsPerSecond": row.requests_per_s,
        "latencySeconds": row.latency_s,
    }
    body |= {} if row.quantile is None else {"percentile": percentile_of(row.quantile)}
    body |= {name: six_digits(one) for name, one in numbers.items() if one is not None}
    flags = {
        "counterfactual": row.counterfactual,
        "probation": row.probation,
        "violated": row.violated,
    }
    body |= {name: True for name, one in flags.items() if one}
    if row.partners:
        body["partners"] = [
            {"index": index, "class": one.workload_class, "share": one.percent}
            for index, one in enumerate(row.partners)
        ]
    return body


def newest_first(row: StepRow) -> tuple[float, str]:
    """Order of windows in a status."""
    return -row.at_s, row.id


def _by_type(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    return tuple(sorted(conditions, key=lambda one: one.type))


_read_status, _write_status = derived(
    ProfileStatus,
    solo=rows(solo_from_wire, solo_to_wire, Listed(order=lambda row: (row.device, row.share))),
    step_time=rows(step_from_wire, step_to_wire, Listed(order=newest_first)),
    requests_per_s=Embedded(
        lambda raw: number(raw, "requestsPerSecond"),
        lambda rate: {"requestsPerSecond": six_digits(rate)} if rate else {},
    ),
    conditions=replace(CONDITIONS, read=lambda raw, _: _by_type(own_conditions(raw))),
)


def profile_status_to_wire(status: ProfileStatus) -> dict[str, object]:
    """The status of a WorkloadProfile as the API stores it; what says nothing is left out."""
    body = _write_status(status)
    return body | {"rows": len(status.step_time)} if status.step_time else body


def profile_status_from_wire(raw: JsonObject) -> ProfileStatus:
    """The status that was read back; lists in one order, newest windows first.

    Raises:
        WireError: a field has the wrong type; the text names it.
    """
    return _read_status(raw)


def profile_as_stored(status: ProfileStatus) -> ProfileStatus:
    """The status as it will read back once written; equal for what was read back."""
    return profile_status_from_wire(profile_status_to_wire(status))


def _parameters(raw: JsonObject, field: str) -> tuple[tuple[str, float], ...]:
    listed = objects(raw, field)
    with within(field):
        return tuple(sorted((text(one, "name"), _signed(one, "value")) for one in listed))


def _signed(raw: JsonObject, field: str) -> float:
    value = raw.get(field)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WireError(f"{field}: expected a number, got {type(value).__name__}")
    if not abs(value) <= MOST_PARAMETER:
        raise WireError(f"{field}: {value:g} must be a number of at most {MOST_PARAMETER:g}")
    return float(value)


device_model_from_wire, device_model_to_wire = derived(
    DeviceModel,
    hyperparameters=(
        Kind(
            _parameters,
            lambda held: [{"name": name, "value": six_digits(value)} for name, value in held],
        ),
        KEPT,
    ),
)


def device_model_of(status: JsonObject) -> DeviceModel | None:
    """The model in a DeviceProfile's status, ``None`` where nothing was learned yet.

    Raises:
        WireError: it is malformed.
    """
    if not status.get("model"):
        return None
    with within("model"):
        return device_model_from_wire(section(status, "model"))
