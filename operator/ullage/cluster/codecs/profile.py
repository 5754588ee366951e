# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Measured parts of profiles as JSON, both ways.

As for workloads, written values read back equal: else the operator would write for ever. Numbers
are rounded to six significant digits, times to seconds, lists get one order. A number that is not
finite or below 0 is an error, from any source. No estimate becomes a measurement: every speed has
its source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Final

from ullage.api import wire_fields
from ullage.api.codec import derived, rows
from ullage.api.numbers import needed, number, six_digits
from ullage.api.observations import MAX_PARTNERS
from ullage.api.readers import JsonObject, WireError, objects, section, text
from ullage.api.wire_fields import (
    CLASS,
    INT32_COUNT,
    INT32_MAX,
    KEPT,
    NEEDED,
    Embedded,
    Kind,
    Listed,
    Schema,
    at_most,
    between,
    keyed,
)
from ullage.api.workloadprofile import MAX_SOLO_ROWS, MAX_STEP_ROWS
from ullage.cluster.codecs.objects import CONDITIONS, own_conditions, within
from ullage.cluster.records.profile import (
    MAX_PERCENTILES,
    MOST_PARAMETER,
    PERCENTILE,
    RATIO,
    DeviceModel,
    OpTable,
    ProfileStatus,
    SoloEntry,
    StepRow,
)
from ullage.cluster.values.quantiles import percentile_of, quantile_of
from ullage.engines.admission.records import Fingerprint, Partner

MIB: Final = 2**20

QUANTILES: Final[Mapping[str, float]] = {
    "latencyP50Seconds": 0.5,
    "latencyP90Seconds": 0.9,
    "latencyP99Seconds": 0.99,
    "latencyP999Seconds": 0.999,
}
_PART: Final = wire_fields.number(1)
_FIGURE: Final = wire_fields.number()


_fingerprint: Final = derived(
    Fingerprint,
    ("stressor_dram", "stressor_tensor", "stressor_l2"),
    sm=(_PART, "smUtil", Schema(before="stepsPerSecond")),
    dram=(_PART, "dramUtil", Schema(before="dutyCycle")),
    tensor=(_PART, "tensorUtil"),
    fp32=(_PART, "fp32Util"),
    fp16=(_PART, "fp16Util"),
    fp64=(_PART, "fp64Util"),
    occupancy=(_PART, Schema(before="tensorUtil")),
    kernel_idle=(_PART, "kernelIdleFraction", Schema(before="dutyCycle")),
    graph=(_PART, "graphFraction", Schema(before="kernelIdleFraction")),
    duty_cycle=_PART,
    cpu_cores=(wire_fields.number(RATIO), "cpuUtil"),
    power_watts=_FIGURE,
    launches_per_s=(_FIGURE, "launchesPerSecond", Schema(before="graphFraction")),
    pcie_tx_bytes_per_s=(_FIGURE, "pcieTxBytesPerSecond", Schema(before="launchesPerSecond")),
    pcie_rx_bytes_per_s=(_FIGURE, "pcieRxBytesPerSecond", Schema(before="launchesPerSecond")),
    peak_memory_mib=(
        Kind(
            lambda raw, field: needed(raw, field) / MIB,
            lambda peak: six_digits(peak * MIB),
            schema=_FIGURE.schema,
        ),
        "peakMemoryBytes",
    ),
)


_LATENCY: Final = Schema(
    properties={
        name: Schema(**_FIGURE.schema.keywords, description=text)
        for name, text in zip(
            QUANTILES,
            (
                "Median time to serve a request that does not wait.",
                "The same at 90 percent of the requests.",
                "The same at 99 percent of the requests.",
                "The same at 99.9 percent of the requests.",
            ),
            strict=True,
        )
    }
)
_MEASURED: Final = Schema(
    type="array",
    items=Schema(
        type="object",
        description="Latency of requests alone at one percentile, their wait for one another "
        "included.",
        properties={
            "percentile": Schema(
                **PERCENTILE.keywords,
                required=True,
                description="Percent of the requests that took no longer, as the objective writes "
                "it.",
            ),
            "seconds": Schema(
                **_FIGURE.schema.keywords,
                required=True,
                description="Median over the windows alone.",
            ),
        },
    ),
)


def _quantiles(raw: JsonObject) -> tuple[tuple[float, float], ...]:
    return tuple(
        (quantile, needed(raw, name))
        for name, quantile in QUANTILES.items()
        if raw.get(name) is not None
    )


def _quantiles_to_wire(latency: Iterable[tuple[float, float]]) -> dict[str, object]:
    seconds = dict(latency)
    return {
        name: six_digits(seconds[quantile])
        for name, quantile in QUANTILES.items()
        if quantile in seconds
    }


def _measured(raw: JsonObject, field: str) -> tuple[tuple[float, float], ...]:
    with within(field):
        return tuple(
            sorted(
                (quantile_of(text(row, "percentile")), needed(row, "seconds"))
                for row in objects(raw, field)
            )
        )


def _measured_to_wire(measured: Iterable[tuple[float, float]]) -> list[dict[str, object]]:
    return [
        {"percentile": percentile_of(quantile), "seconds": six_digits(value)}
        for quantile, value in measured
    ]


_SOLO: Final = derived(
    SoloEntry,
    ("sm_util",),
    fingerprint=Embedded(
        _fingerprint.read, _fingerprint.write, Schema(properties=_fingerprint.shape)
    ),
    latency=Embedded(_quantiles, _quantiles_to_wire, _LATENCY),
    measured=(
        Kind(_measured, _measured_to_wire, (), schema=_MEASURED),
        "latency",
        keyed("percentile", most=MAX_PERCENTILES),
    ),
)
solo_to_wire = _SOLO.write


def solo_from_wire(raw: JsonObject) -> SoloEntry:
    """One row of behaviour alone, declared or measured.

    Raises:
        WireError: a column is missing or of the wrong type.
    """
    row = _SOLO.read(raw)
    return replace(row, sm_util=row.fingerprint.sm or 0.0)


def _place(row: SoloEntry) -> tuple[str, int]:
    return row.device, row.share


_READ: Final = _SOLO._replace(read=solo_from_wire)
DECLARED_SOLO: Final = _READ._replace(shape=replace(_SOLO.shape, fields=_SOLO.shape.fields[:-1]))
"""Without the number of windows, which only measured rows have."""
SOLO_ROWS: Final = rows(DECLARED_SOLO, Listed(key=_place))

_PARTNER: Final = derived(
    Partner,
    workload_class=(Kind(text, schema=CLASS), "class", NEEDED),
    percent=(between(0, INT32_MAX), "share", NEEDED),
)
STEP: Final = derived(
    StepRow,
    partners=(
        rows(
            _PARTNER,
            Listed(rank="index", says=Schema(description="Which of the others, from 0.")),
        ),
        keyed("index", most=MAX_PARTNERS),
    ),
)


def newest_first(row: StepRow) -> tuple[float, str]:
    """Order of windows in a status."""
    return -row.at_s, row.id


STEP_ROWS: Final = rows(STEP, Listed(order=newest_first, key=lambda row: row.id))
step_from_wire, step_to_wire = STEP.read, STEP.write
OP_TABLE: Final = derived(OpTable)
op_table_to_wire = OP_TABLE.write


PROFILE_STATUS: Final = derived(
    ProfileStatus,
    solo=(
        rows(_READ, Listed(order=_place, key=_place)),
        Schema(
            items=Schema(
                type="object",
                properties=_SOLO.shape,
                description="Behaviour alone on one type of device at one share, as nodes measured "
                "it.",
            )
        ),
        keyed("device", "share", most=MAX_SOLO_ROWS),
    ),
    step_time=(STEP_ROWS, keyed("id", most=MAX_STEP_ROWS)),
    requests_per_s=Embedded(
        lambda raw: number(raw, "requestsPerSecond"),
        lambda rate: {"requestsPerSecond": six_digits(rate)} if rate else {},
        Schema(
            properties={
                "rows": Schema(
                    **INT32_COUNT.keywords, description="Rows in stepTime.", before="confidence"
                ),
                "requestsPerSecond": Schema(
                    **_FIGURE.schema.keywords,
                    description="Load of one replica: the 90th percentile of the newest windows.",
                    before="solo",
                ),
            }
        ),
    ),
    conditions=replace(
        CONDITIONS, read=lambda raw, _: tuple(sorted(own_conditions(raw), key=attrgetter("type")))
    ),
)


def profile_status_to_wire(status: ProfileStatus) -> dict[str, object]:
    """The status of a WorkloadProfile as JSON for the API; empty values are left out."""
    body = PROFILE_STATUS.write(status)
    return body | {"rows": len(status.step_time)} if status.step_time else body


def profile_status_from_wire(raw: JsonObject) -> ProfileStatus:
    """The status read back; lists in one order, newest windows first.

    Raises:
        WireError: a field has the wrong type; the text names it.
    """
    return PROFILE_STATUS.read(raw)


def profile_as_stored(status: ProfileStatus) -> ProfileStatus:
    """The status as it will read back once written; equal if it was read back."""
    return profile_status_from_wire(profile_status_to_wire(status))


def _parameters(raw: JsonObject, field: str) -> tuple[tuple[str, float], ...]:
    listed = objects(raw, field)
    with within(field):
        return tuple(sorted((text(row, "name"), _signed(row, "value")) for row in listed))


def _signed(raw: JsonObject, field: str) -> float:
    value = raw.get(field)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WireError(f"{field}: expected a number, got {type(value).__name__}")
    if not abs(value) <= MOST_PARAMETER:
        raise WireError(f"{field}: {value:g} must be a number of at most {MOST_PARAMETER:g}")
    return float(value)


DEVICE_MODEL: Final = derived(
    DeviceModel,
    hyperparameters=(
        Kind(
            _parameters,
            lambda pairs: [{"name": name, "value": six_digits(value)} for name, value in pairs],
            schema=Schema(
                type="array",
                items=Schema(
                    type="object",
                    description="One fitted parameter of the model.",
                    properties={
                        "name": Schema(
                            **at_most(64).keywords,
                            required=True,
                            description="Name of the parameter.",
                        ),
                        "value": Schema(
                            type="number",
                            required=True,
                            minimum=-MOST_PARAMETER,
                            maximum=MOST_PARAMETER,
                            description="Value of the parameter.",
                        ),
                    },
                ),
            ),
        ),
        KEPT,
        keyed("name", most=64),
    ),
)
device_model_from_wire, device_model_to_wire = DEVICE_MODEL.read, DEVICE_MODEL.write


def device_model_of(status: JsonObject) -> DeviceModel | None:
    """The model in a DeviceProfile's status, ``None`` if nothing was learned yet.

    Raises:
        WireError: it is malformed.
    """
    if not status.get("model"):
        return None
    with within("model"):
        return device_model_from_wire(section(status, "model"))
