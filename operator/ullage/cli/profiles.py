# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Profiles as files: knowledge of one cluster, for another. Pure.

A file has only declared rows, so exporting an imported file gives the same file. Invalid numbers
never get into a cluster: every error names its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any, cast

import yaml

from ullage.api.codec import Codec, unknown_fields
from ullage.api.labels import API_VERSION
from ullage.api.readers import WireError, objects, section
from ullage.api.workloadprofile import MAX_STEP_ROWS, read_profile_spec
from ullage.cluster.codecs.profile import (
    DECLARED_SOLO,
    OP_TABLE,
    SOLO_ROWS,
    STEP,
    STEP_ROWS,
    op_table_to_wire,
    solo_to_wire,
    step_to_wire,
)
from ullage.cluster.records.profile import ProfileRecord, Source
from ullage.cluster.records.snapshot import Snapshot
from ullage.ports import JsonObject

MOST_FAULTS = 10


class ProfileError(Exception):
    """The file is no usable profile; the text has the correction."""


def exported(profile: ProfileRecord) -> dict[str, object]:
    """A profile with its measured rows as declared ones; measured rows have precedence."""
    rows = {(row.device, row.share): row for row in (*profile.solo, *profile.status.solo)}
    solo = [
        {name: value for name, value in solo_to_wire(rows[key]).items() if name != "samples"}
        for key in sorted(rows)
    ]
    steps = [
        step_to_wire(replace(row, source=Source.DECLARED)) for row in profile.rows[:MAX_STEP_ROWS]
    ]
    spec: dict[str, object] = {"class": profile.workload_class}
    family = profile.status.family or profile.family
    spec |= {"family": family} if family else {}
    spec |= {"solo": solo} if solo else {}
    spec |= {"stepTime": steps} if steps else {}
    spec |= {"opTable": op_table_to_wire(profile.op_table)} if profile.op_table is not None else {}
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkloadProfile",
        "metadata": {"name": profile.name, "namespace": profile.namespace},
        "spec": spec,
    }


def to_yaml(body: JsonObject) -> str:
    """The file's text."""
    return yaml.safe_dump(dict(body), sort_keys=False, allow_unicode=True, width=100)


def accelerators(snapshot: Snapshot) -> set[str]:
    """Every known accelerator key of the cluster."""
    seen = {device.model for node in snapshot.gpu_nodes.values() for device in node.devices}
    return seen | set(snapshot.device_profiles)


def read(text: str, name: str, namespace: str, known: Set[str] | None) -> dict[str, object]:
    """The object described by a file, with this name and namespace.

    Args:
        text: The YAML.
        name: Name of the object.
        namespace: Namespace of the object.
        known: Accelerators that rows may name; ``None`` = any.

    Raises:
        ProfileError: it is no profile, or a row is unusable.
    """
    try:
        body = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ProfileError(f"the file is no YAML: {error}") from error
    if not isinstance(body, dict) or body.get("kind") != "WorkloadProfile":
        raise ProfileError(
            "the file holds no WorkloadProfile; `kubectl ullage profile export` writes one"
        )
    spec = body.get("spec")
    made: dict[str, object] = {
        "apiVersion": API_VERSION,
        "kind": "WorkloadProfile",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    return checked(made, known)


def checked(made: dict[str, object], known: Set[str] | None) -> dict[str, object]:
    """The same object, if a cluster accepts it.

    Raises:
        ProfileError: a number is invalid, an accelerator is unknown, or the schema rejects it.
    """
    spec = made["spec"]
    faults = [*_numbers(spec, "spec"), *_strangers(spec, known)]
    if not faults:
        faults = [*_misfits(spec)]
    if faults:
        more = len(faults) - MOST_FAULTS
        shown = faults[:MOST_FAULTS] + ([f"and {more} more"] if more > 0 else [])
        raise ProfileError("the profile cannot be imported:\n  " + "\n  ".join(shown))
    return made


class _Loader(yaml.SafeLoader):
    """Keep times as text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _numbers(value: object, path: str) -> Iterator[str]:
    """Invalid and negative numbers: nothing in a profile is below 0."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield from _numbers(child, f"{path}.{name}")
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _numbers(child, f"{path}[{index}]")
    elif isinstance(value, (int, float)) and not (isfinite(value) and value >= 0):
        yield f"{path}: {value} must be a finite number of at least 0"


def _strangers(spec: object, known: Set[str] | None) -> Iterator[str]:
    """Rows of accelerators unknown to the cluster."""
    if known is None or not isinstance(spec, dict):
        return
    table = spec.get("opTable")
    tables = {"solo": spec.get("solo"), "stepTime": spec.get("stepTime")}
    tables |= {"opTable": [table]} if isinstance(table, dict) else {}
    for name, rows in tables.items():
        column = "device" if name == "solo" else "accelerator"
        for index, row in enumerate(rows if isinstance(rows, list) else ()):
            named = row.get(column) if isinstance(row, dict) else None
            if isinstance(named, str) and named not in known:
                have = ", ".join(sorted(known)) or "none"
                yield (
                    f"spec.{name}[{index}].{column}: accelerator {named!r} is unknown here (known:"
                    f" {have}); create its DeviceProfile, or pass --unknown-accelerators"
                )


def _misfits(spec: object) -> Iterator[str]:
    """Unreadable values, and unknown fields."""
    try:
        read_profile_spec.strictly(spec)
    except WireError as error:
        yield str(error)
        return
    stated = cast("JsonObject", spec)
    tables = (("solo", DECLARED_SOLO, SOLO_ROWS), ("stepTime", STEP, STEP_ROWS))
    for field, codec, rows in tables:
        faults = [
            fault
            for index, row in enumerate(objects(stated, field))
            for fault in _row_faults(codec, row, f"spec.{field}[{index}]")
        ]
        yield from faults or _faults(partial(rows.read, stated, field), "spec")
    yield from _row_faults(OP_TABLE, section(stated, "opTable"), "spec.opTable")


def _row_faults(codec: Codec[Any], row: JsonObject, path: str) -> Iterator[str]:
    if row:
        yield from (f"{path}.{name}: unknown field" for name in unknown_fields(codec.shape, row))
        yield from _faults(partial(codec.read, row), path)


def _faults(read: Callable[[], object], path: str) -> Iterator[str]:
    try:
        read()
    except WireError as error:
        yield f"{path}.{error}"
