# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Speeds per accelerator as JSON, both ways; what was written reads back equal.

It must never turn an estimate into a measurement: the source travels with every number.
"""

from __future__ import annotations

from ullage.api.contract import WireError, text
from ullage.ports import JsonObject
from ullage.state.profile_numbers import needed, number, six_digits
from ullage.state.profile_records import Method, Source, ThroughputEntry
from ullage.state.project import optional_whole


def throughput_to_wire(entry: ThroughputEntry) -> dict[str, object]:
    """One row of ``status.throughput`` as the API stores it."""
    body: dict[str, object] = {
        "accelerator": entry.accelerator,
        "stepsPerSecond": six_digits(entry.steps_per_second),
        "source": entry.source.value,
        "method": entry.method.value,
        "confidence": six_digits(entry.confidence),
    }
    if entry.low is not None and entry.high is not None:
        body["lowStepsPerSecond"] = six_digits(entry.low)
        body["highStepsPerSecond"] = six_digits(entry.high)
    return body | ({"samples": entry.samples} if entry.samples else {})


def throughput_from_wire(raw: JsonObject) -> ThroughputEntry:
    """One row that was read back.

    Raises:
        WireError: a column is missing, of the wrong type, or a word that is not known.
    """
    try:
        source, method = Source(text(raw, "source")), Method(text(raw, "method"))
    except WireError:
        raise
    except ValueError as error:
        raise WireError(f"source or method: {error}") from error
    return ThroughputEntry(
        accelerator=text(raw, "accelerator"),
        steps_per_second=needed(raw, "stepsPerSecond"),
        low=number(raw, "lowStepsPerSecond"),
        high=number(raw, "highStepsPerSecond"),
        source=source,
        method=method,
        confidence=needed(raw, "confidence"),
        samples=optional_whole(raw, "samples"),
    )
