# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Profiles as files: what one cluster learned, for another. Pure.

A file holds declared rows only, so importing what was exported and exporting it again gives the
same file. Bad numbers never get into a cluster: every fault is named with its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Set
from dataclasses import replace
from math import isfinite

import yaml
from pydantic import ValidationError

from ullage.api.labels import API_VERSION
from ullage.api.profilerows import MAX_STEP_ROWS
from ullage.api.workloadprofile import WorkloadProfile
from ullage.cluster.codecs.profile import op_table_to_wire, solo_to_wire, step_to_wire
from ullage.cluster.records.profile import ProfileRecord, Source
from ullage.cluster.records.snapshot import Snapshot
from ullage.ports import JsonObject

MOST_FAULTS = 10


class ProfileError(Exception):
    """The file is no profile that can be used; the text names what to mend."""


def exported(profile: ProfileRecord) -> dict[str, object]:
    """A profile with its measured rows as declared ones; a measured row beats the declared."""
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
    """Every accelerator key that the cluster knows."""
    seen = {device.model for node in snapshot.gpu_nodes.values() for device in node.devices}
    return seen | set(snapshot.device_profiles)


def read(text: str, name: str, namespace: str, known: Set[str] | None) -> dict[str, object]:
    """The object that a file describes, under this name and namespace.

    Args:
        text: YAML.
        name: name of the object.
        namespace: namespace of the object.
        known: accelerators that rows may name; ``None`` = any.

    Raises:
        ProfileError: it is no profile, or a row cannot be used.
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
    """The very object, if a cluster can take it.

    Raises:
        ProfileError: a number is none, an accelerator is unknown, or the schema refuses it.
    """
    spec = made["spec"]
    faults = [*_numbers(spec, "spec"), *_strangers(spec, known)]
    if not faults:
        faults = [*_misfits(made)]
    if faults:
        more = len(faults) - MOST_FAULTS
        shown = faults[:MOST_FAULTS] + ([f"and {more} more"] if more > 0 else [])
        raise ProfileError("the profile cannot be imported:\n  " + "\n  ".join(shown))
    return made


class _Loader(yaml.SafeLoader):
    """Times stay the texts that they are."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _numbers(value: object, path: str) -> Iterator[str]:
    """Numbers that are none, and negative ones: nothing in a profile is below 0."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield from _numbers(child, f"{path}.{name}")
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _numbers(child, f"{path}[{index}]")
    elif isinstance(value, (int, float)) and not (isfinite(value) and value >= 0):
        yield f"{path}: {value} must be a finite number of at least 0"


def _strangers(spec: object, known: Set[str] | None) -> Iterator[str]:
    """Rows of accelerators that the cluster does not know."""
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


def _misfits(body: JsonObject) -> Iterator[str]:
    """Values that the schema refuses, and fields that it lacks."""
    try:
        model = WorkloadProfile.model_validate_json(json.dumps(body), strict=True)
    except ValidationError as error:
        for problem in error.errors():
            yield f"{_path(problem['loc'])}: {problem['msg']}"
        return
    taken = json.loads(model.model_dump_json(by_alias=True, exclude_unset=True))
    yield from _lost(body["spec"], taken["spec"], "spec")


def _path(parts: tuple[int | str, ...]) -> str:
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return shown.lstrip(".")


def _lost(given: object, taken: object, path: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(taken, dict):
        for name, child in given.items():
            if name not in taken:
                yield f"{path}.{name}: unknown field"
            else:
                yield from _lost(child, taken[name], f"{path}.{name}")
    elif isinstance(given, list) and isinstance(taken, list):
        for index, (entry, other) in enumerate(zip(given, taken, strict=True)):
            yield from _lost(entry, other, f"{path}[{index}]")
