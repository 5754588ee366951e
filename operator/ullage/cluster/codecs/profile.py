# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Measured parts of profiles as JSON, both ways.

As for workloads, what was written reads back equal: else the operator would write for ever.
Numbers are rounded to six significant digits, times to seconds, lists get one order. A number that
is not finite or below 0 is an error, whoever wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.contract import WireError, bounded, flag, objects, section, text, whole
from ullage.api.readers import count_of, quoted
from ullage.cluster.codecs.objects import condition_to_wire, optional_text, own_conditions, within
from ullage.cluster.codecs.speed import (
    throughput_from_wire,
    throughput_to_wire,
)
from ullage.cluster.records.profile import (
    DeviceModel,
    InterferenceEntry,
    ModelThreshold,
    ProfileStatus,
    SoloEntry,
    Source,
    StepRow,
)
from ullage.cluster.values.numbers import MOST
from ullage.cluster.values.numbers import needed as needed
from ullage.cluster.values.numbers import number as number
from ullage.cluster.values.numbers import six_digits as six_digits
from ullage.cluster.values.quantiles import percentile_of, quantile_of
from ullage.cluster.values.quantity import rfc3339, seconds
from ullage.engines.admission.records import Fingerprint, Partner
from ullage.ports import JsonObject

INT32_MAX: Final = 2**31 - 1
REFUSE: Final = "Refuse"
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

_PARAMETER: Final = 1e9
RATIO: Final = 1e6
"""Largest ratio of a table, such as a slowdown."""
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


def _interference_to_wire(entry: InterferenceEntry) -> dict[str, object]:
    body: dict[str, object] = {
        "accelerator": entry.accelerator,
        "sensitivity": six_digits(entry.sensitivity),
        "rows": entry.rows,
    }
    if entry.aggressiveness is not None:
        body["aggressiveness"] = six_digits(entry.aggressiveness)
    return body


def _interference(raw: JsonObject) -> InterferenceEntry:
    return InterferenceEntry(
        accelerator=text(raw, "accelerator"),
        sensitivity=needed(raw, "sensitivity", RATIO),
        aggressiveness=number(raw, "aggressiveness", RATIO),
        rows=count_of(raw, "rows"),
    )


def profile_status_to_wire(status: ProfileStatus) -> dict[str, object]:
    """The status of a WorkloadProfile as the API stores it; what says nothing is left out."""
    body: dict[str, object] = {
        "observedGeneration": status.observed_generation,
        "source": status.source,
        "sourceHash": status.source_hash,
        "formerHash": status.former_hash,
        "family": status.family,
        "since": rfc3339(status.since) if status.since else "",
        "updated": rfc3339(status.updated) if status.updated else "",
        "lastUsed": rfc3339(status.last_used) if status.last_used else "",
        "rows": len(status.step_time),
        "confidence": six_digits(status.confidence),
        "novel": status.novel,
        "driftSlower": six_digits(status.drift_slower),
        "driftFaster": six_digits(status.drift_faster),
        "trialSeconds": six_digits(status.trial_s),
        "trialRows": status.trial_rows,
        "faults": status.faults,
        "requestsPerSecond": six_digits(status.requests_per_s or 0.0),
        "solo": [solo_to_wire(row) for row in status.solo],
        "stepTime": [step_to_wire(row) for row in status.step_time],
        "interference": [_interference_to_wire(entry) for entry in status.interference],
        "throughput": [throughput_to_wire(entry) for entry in status.throughput],
        "throughputBasis": status.throughput_basis,
        "throughputUpdated": rfc3339(status.throughput_at) if status.throughput_at else "",
        "conditions": [condition_to_wire(item) for item in status.conditions],
    }
    return {name: value for name, value in body.items() if value not in ("", 0, [], False)}


def profile_status_from_wire(raw: JsonObject) -> ProfileStatus:
    """The status that was read back; lists in one order, newest windows first.

    Raises:
        WireError: a field has the wrong type; the text names it.
    """
    with within("solo"):
        solo = [solo_from_wire(row) for row in objects(raw, "solo")]
    with within("stepTime"):
        steps = [step_from_wire(row) for row in objects(raw, "stepTime")]
    with within("interference"):
        entries = [_interference(entry) for entry in objects(raw, "interference")]
    with within("throughput"):
        speeds = [throughput_from_wire(entry) for entry in objects(raw, "throughput")]
    return ProfileStatus(
        observed_generation=count_of(raw, "observedGeneration"),
        source=optional_text(raw, "source"),
        source_hash=optional_text(raw, "sourceHash"),
        former_hash=optional_text(raw, "formerHash"),
        family=optional_text(raw, "family"),
        since=seconds(raw.get("since"), "since"),
        updated=seconds(raw.get("updated"), "updated"),
        last_used=seconds(raw.get("lastUsed"), "lastUsed"),
        confidence=number(raw, "confidence") or 0.0,
        novel=flag(raw, "novel"),
        drift_slower=number(raw, "driftSlower") or 0.0,
        drift_faster=number(raw, "driftFaster") or 0.0,
        trial_s=number(raw, "trialSeconds") or 0.0,
        trial_rows=count_of(raw, "trialRows"),
        faults=count_of(raw, "faults"),
        requests_per_s=number(raw, "requestsPerSecond"),
        solo=tuple(sorted(solo, key=lambda row: (row.device, row.share))),
        step_time=tuple(sorted(steps, key=newest_first)),
        interference=tuple(sorted(entries, key=lambda entry: entry.accelerator)),
        throughput=tuple(sorted(speeds, key=lambda entry: entry.accelerator)),
        throughput_basis=optional_text(raw, "throughputBasis"),
        throughput_at=seconds(raw.get("throughputUpdated"), "throughputUpdated"),
        conditions=tuple(sorted(own_conditions(raw), key=lambda item: item.type)),
    )


def newest_first(row: StepRow) -> tuple[float, str]:
    """Order of windows in a status."""
    return -row.at_s, row.id


def profile_as_stored(status: ProfileStatus) -> ProfileStatus:
    """The status as it will read back once written; equal for what was read back."""
    return profile_status_from_wire(profile_status_to_wire(status))


def device_model_to_wire(model: DeviceModel) -> dict[str, object]:
    """``DeviceProfile.status.model`` as the API stores it."""
    body: dict[str, object] = {
        "version": model.version,
        "rung": model.rung,
        "rows": model.rows,
        "updated": rfc3339(model.updated),
        "hyperparameters": [
            {"name": name, "value": six_digits(value)} for name, value in model.hyperparameters
        ],
        "thresholds": [
            {
                "group": one.group,
                "band": one.band,
                "lambda": REFUSE if one.threshold is None else f"{one.threshold:.4f}",
                "rows": one.rows,
                "violations": one.violations,
            }
            for one in model.thresholds
        ],
    }
    return body | ({} if model.knee is None else {"knee": six_digits(model.knee)})


def device_model_from_wire(raw: JsonObject) -> DeviceModel:
    """The model that was read back.

    Raises:
        WireError: a field is missing or of the wrong type.
    """
    with within("hyperparameters"):
        listed = objects(raw, "hyperparameters")
        figures = [(text(one, "name"), _signed(one, "value")) for one in listed]
    with within("thresholds"):
        thresholds = [_threshold(one) for one in objects(raw, "thresholds")]
    return DeviceModel(
        version=whole(raw, "version"),
        rung=text(raw, "rung"),
        rows=count_of(raw, "rows"),
        updated=seconds(raw.get("updated"), "updated"),
        knee=number(raw, "knee"),
        hyperparameters=tuple(sorted(figures)),
        thresholds=tuple(sorted(thresholds, key=lambda one: (one.group, one.band))),
    )


def _signed(raw: JsonObject, field: str) -> float:
    value = raw.get(field)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WireError(f"{field}: expected a number, got {type(value).__name__}")
    if not abs(value) <= _PARAMETER:
        raise WireError(f"{field}: {value:g} must be a number of at most {_PARAMETER:g}")
    return float(value)


def _threshold(raw: JsonObject) -> ModelThreshold:
    said = text(raw, "lambda")
    try:
        value = None if said == REFUSE else float(said)
    except ValueError as error:
        raise WireError(f"lambda: {quoted(said)} is neither a number nor {REFUSE}") from error
    if value is not None and not abs(value) <= _PARAMETER:
        raise WireError(f"lambda: {quoted(said)} is no threshold")
    return ModelThreshold(
        group=text(raw, "group"),
        band=text(raw, "band"),
        threshold=value,
        rows=count_of(raw, "rows"),
        violations=count_of(raw, "violations"),
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
