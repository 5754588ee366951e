# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Wild objects: JSON bytes as an API server could send them, of every kind that the operator reads.

An object begins valid by its schema, with contents at the bounds; where a schema keeps unknown
fields anything stands. Then some of its fields are broken: another type, too deep, too long, too
large, out of the calendar, or forged from another namespace. The same seed gives the same bytes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from bench.report import ROOT
from bench.wild_shapes import REAL, SHAPES
from ullage.cluster.values import streams
from ullage.cluster.values.streams import Stream

Schema = Mapping[str, Any]
Step = str | int

SPACES: Final = ("tenant-a", "tenant-b")
"""Namespaces of wild objects."""
GOOD_SPACE: Final = "tenant-c"
"""The namespace that behaves."""
LARGEST: Final = 0.2
"""Part of the objects whose numbers are as large as their schema takes."""
LONGEST: Final = 0.125
"""Part of their lists that are as long as it takes."""
NAMES: Final = 12
"""Names of wild objects in each namespace."""
KEEPS: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
STATIONS: Final[Mapping[Stream, int]] = {
    streams.TRAINING_JOBS: 30,
    streams.INFERENCE_DEPLOYMENTS: 12,
    streams.PODS: 20,
    streams.FOREIGN_PODS: 6,
    streams.WORKLOAD_PROFILES: 8,
    streams.GPU_NODES: 6,
    streams.NODES: 4,
    streams.DEPLOYMENTS: 4,
    streams.SERVICES: 3,
    streams.DEVICE_PROFILES: 2,
    streams.SCHEDULING_POLICIES: 2,
    streams.CAPACITY_POOLS: 3,
    streams.TUNING_JOBS: 5,
    streams.PROFILE_REQUESTS: 3,
    streams.POD_GROUPS: 2,
    streams.NAMESPACES: 1,
    streams.CLAIMS: 2,
    streams.VOLUMES: 2,
    streams.STORAGE_CLASSES: 1,
}
"""How often each stream is drawn, in proportion."""

RAW: Final[Mapping[str, bytes]] = {
    "deep-70": b'{"a":' * 70 + b"1" + b"}" * 70,
    "deep-300": b"[" * 300 + b"]" * 300,
    "deep-1100": b'{"a":' * 1100 + b"1" + b"}" * 1100,
    "deep-9000": b"[" * 9000 + b"]" * 9000,
    "digits-20": b"9" * 20,
    "digits-400": b"9" * 400,
    "digits-5000": b"9" * 5000,
    "huge": b"1e400",
    "tiny": b"1e-400",
    "surrogate": b'"\\ud800"',
    "control": b'"\\u0000\\u001b[2J\\u202e"',
}
"""What no JSON library writes."""
_MARK: Final = "@raw:"
_MARKED: Final = re.compile(rb'"@raw:([a-z0-9-]+)"')

TIMES: Final = (
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-23:59",
    "10000-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "2026-02-30T00:00:00Z",
    "2026-01-01T00:00:00",
    "2026-01-02T03:04:05.999999999Z",
    "2026-06-30T23:59:60Z",
    "yesterday",
)
NUMBERS: Final = (
    0,
    -0.0,
    -1,
    1,
    7,
    2**31 - 1,
    2**31,
    2**53,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
    0.5,
    1e308,
    -1e308,
    5e-324,
)
TEXTS: Final = (
    "",
    " ",
    "a",
    "-1",
    "0",
    "1",
    "1.5",
    "1e400",
    "nan",
    "-inf",
    "Infinity",
    "1_000",
    "٣",
    "²",
    "9" * 20,
    "9" * 4301,
    "9" * 5000 + "Gi",
    "1e999",
    "1e-999",
    "-5Gi",
    "16Ei",
    "1n",
    "0.0000000001",
    "100%",
    "9" * 5000 + "%",
    "99999999h",
    "0s",
    "1h" * 200,
    "True",
    "null",
    "a/b",
    "../../etc/passwd",
    "namespace/tenant-c",
    "uid-tenant-c-runs",
    "{{.}}",
    "'; DROP TABLE jobs; --",
    "𝔘nicode \u202e \U0001f9e8",
    "x" * 300,
    "y" * 5_000,
    "9999999999999999999-0",
    "Auto",
    "Fractional",
    "Deadline",
)
ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    [1, "a"],
    [{}],
    [{"name": {"a": 1}}],
    {"a": {}},
    {"": ""},
    {"name": []},
    ["a", "a"],
    {"cpu": "9" * 5000},
    {"matchExpressions": 7},
)


def _corpus() -> tuple[str, ...]:
    return (
        *("a", "b7", "x" * 63, "x" * 250, "a-b", "A", "Placed", "SIGTERM", "TrainingJob"),
        *("0", "1", "7", "99", "1.5", "99.9", "0.000001", "9999.9999", "999999999.999999", "-1.5"),
        *("1h", "60h", "1h30m", "0.5s", "99999999h", "0s", "1Gi", "100Gi", "4Mi", "9999999999Pi"),
        *("nvidia-h100-80gb-hbm3", "wild-gpu", "http://prices.example/one", "/spot/0/price"),
        *("6F81-5844-456A", "eastus", "prices.json", "node.kubernetes.io/x", "Refuse", "500m"),
    )


@cache
def schemas() -> Mapping[Stream, Schema]:
    """The schema of every stream's kind: of the CRD, or as written down for a kind of others."""
    found: dict[str, Schema] = {}
    for path in sorted((Path(ROOT) / "crds").glob("*.yaml")):
        crd = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        found[crd["spec"]["names"]["kind"]] = schema
    return {stream: found.get(stream.kind.kind) or SHAPES[stream.kind.kind] for stream in STATIONS}


@cache
def real() -> Mapping[Stream, Sequence[Mapping[str, Any]]]:
    """Objects that the API server takes, of every kind: the valid manifests of the golden set."""
    found: dict[str, list[Mapping[str, Any]]] = {kind: list(those) for kind, those in REAL.items()}
    folder = ROOT / "tests" / "data" / "crd"
    for path in sorted(folder.glob("*.yaml")):
        for text in path.read_text(encoding="utf-8").split("---\n")[1:]:
            if "\n# expect: valid\n" in text:
                body = yaml.load(text, Loader=yaml.CSafeLoader)
                found.setdefault(body["kind"], []).append(body)
    for path in sorted((folder / "status").glob("*.yaml")):
        body = yaml.safe_load(path.read_text(encoding="utf-8"))
        found[body["kind"]] += [
            {**one, "status": body["status"]} for one in found[body["kind"]][:2]
        ]
    plain = {
        kind: [orjson.loads(orjson.dumps(one)) for one in those] for kind, those in found.items()
    }
    return {
        stream: [_on_wild_devices(one) for one in plain[stream.kind.kind]] for stream in STATIONS
    }


def _on_wild_devices(body: dict[str, Any]) -> dict[str, Any]:
    """A workload that may run on devices of wild nodes alone."""
    if body.get("kind") not in ("TrainingJob", "InferenceDeployment"):
        return body
    return {**body, "spec": {**body["spec"], "accelerators": ["wild-gpu"]}}


@cache
def _matching(pattern: str, most: int) -> tuple[str, ...]:
    fits = [one[:most] for one in _corpus() if re.search(pattern, one[:most])]
    if not fits:
        raise ValueError(f"no sample text matches {pattern!r}")
    return tuple(fits)


class Wild:
    """Draws wild objects."""

    def __init__(self, seed: object) -> None:
        self.random = random.Random(str(seed))
        self._streams = list(STATIONS)
        self._weights = list(STATIONS.values())
        self._bases: dict[Stream, Any] = {}
        self._uses: dict[Stream, int] = {}

    def stream(self) -> Stream:
        """One of the streams."""
        return self.random.choices(self._streams, self._weights)[0]

    def item(self, stream: Stream) -> bytes:
        """The bytes of one object."""
        return raw_bytes(self.object(stream))

    def object(self, stream: Stream) -> Any:
        """One object; texts that begin with a mark stand for bytes of their own."""
        draw = self.random
        uses = self._uses.get(stream, 0)
        if uses == 0:
            made = draw.random() < 0.3
            self._bases[stream] = (
                self.valid(schemas()[stream], 0) if made else draw.choice(real()[stream])
            )
            uses = draw.randrange(4, 24)
        self._uses[stream] = uses - 1
        found = {**self._bases[stream], **self._identity(stream)}
        if draw.random() < LARGEST and isinstance(spec := found.get("spec"), dict):
            found["spec"] = self.largest(schemas()[stream]["properties"]["spec"], spec)
        for _ in range(draw.choice((0, 0, 1, 1, 1, 2, 4))):
            found = self._broken(found)
        return found

    # Valid by the schema.

    def valid(self, schema: Schema, level: int) -> Any:
        """A value that the schema takes, as near to its bounds as not."""
        draw = self.random
        if "enum" in schema:
            return draw.choice(schema["enum"])
        if schema.get(INT_OR_STRING):
            return draw.choice((1, draw.choice(_matching(schema.get("pattern", ""), 32))))
        match schema.get("type"):
            case "object":
                return self._valid_object(schema, level)
            case "array":
                return self._valid_list(schema, level)
            case "string":
                return self._valid_text(schema)
            case "boolean":
                return draw.random() < 0.5
            case "integer" | "number":
                return self._valid_number(schema)
            case _:
                return self.anything(2)

    def largest(self, schema: Schema, value: Any) -> Any:
        """A copy in which half of the numbers that stand there have the largest legal value.

        One list in eight has the most entries that its schema takes.
        """
        if isinstance(value, dict):
            known, others = schema.get("properties", {}), schema.get("additionalProperties")
            return {
                name: self.largest(known.get(name, others if isinstance(others, dict) else {}), one)
                for name, one in value.items()
            }
        if isinstance(value, list):
            entries = [self.largest(schema.get("items", {}), one) for one in value]
            free = schema.get("x-kubernetes-list-type") == "atomic"  # alike entries may stand there
            if free and entries and self.random.random() < LONGEST:
                times = schema.get("maxItems", 0) // len(entries)
                return entries * max(1, times)
            return entries
        if schema.get("type") not in ("integer", "number") or self.random.random() < 0.5:
            return value
        size = 2**31 - 1 if schema.get("format") == "int32" else 2**53
        return schema.get("maximum", size)

    def _valid_object(self, schema: Schema, level: int) -> Any:
        draw = self.random
        needed = set(schema.get("required", ()))
        found: dict[str, Any] = {}
        for name, inner in schema.get("properties", {}).items():
            if name in needed or draw.random() < (0.9 if level < 2 else 0.35):
                found[name] = self.valid(inner, level + 1)
        extra = schema.get("additionalProperties")
        if isinstance(extra, Mapping):
            for name in draw.sample(_KEYS, draw.randrange(0, 4)):
                found[name] = self.valid(extra, level + 1)
        if schema.get(KEEPS):
            for name in draw.sample(_UNKNOWN, draw.randrange(0, 4)):
                found.setdefault(name, self.anything(3))
        return found

    def _valid_list(self, schema: Schema, level: int) -> Any:
        draw = self.random
        least, most = schema.get("minItems", 0), min(schema.get("maxItems", 8), 24)
        count = draw.choice((least, least + 1, least + 2, most if draw.random() < 0.1 else least))
        return [self.valid(schema["items"], level + 1) for _ in range(min(count, most))]

    def _valid_text(self, schema: Schema) -> str:
        draw = self.random
        most = schema.get("maxLength", 32768)
        if schema.get("format") == "date-time":
            return draw.choice(TIMES[:4])
        if "pattern" in schema:
            return draw.choice(_matching(schema["pattern"], most))
        return draw.choice(TEXTS)[:most]

    def _valid_number(self, schema: Schema) -> float:
        draw = self.random
        whole = schema["type"] == "integer"
        size = 2**31 - 1 if schema.get("format") == "int32" else 2**63 - 1
        least = schema.get("minimum", -size if whole else 0)
        most = schema.get("maximum", size if whole else 1e12)
        picked = draw.choice((least, least, most, draw.uniform(least, min(most, least + 100))))
        return int(picked) if whole else float(picked)

    # Wild.

    def anything(self, levels: int) -> Any:
        """Any JSON value."""
        draw = self.random
        match draw.randrange(12):
            case 0 | 1:
                return draw.choice(NUMBERS)
            case 2 | 3 | 4:
                return draw.choice(TEXTS)
            case 5 | 6:
                return draw.choice(ODD)
            case 7:
                return draw.choice(TIMES)
            case 8 if draw.random() < 0.3:
                return _MARK + draw.choice(tuple(RAW))
            case 9 | 10 if levels:
                return {
                    draw.choice(_UNKNOWN): self.anything(levels - 1)
                    for _ in range(draw.randrange(3))
                }
            case _:
                return (
                    [self.anything(levels - 1) for _ in range(draw.randrange(3))] if levels else 0
                )

    def _identity(self, stream: Stream) -> dict[str, Any]:
        """Kind and metadata: a name of few, so that objects are edited as often as made."""
        draw = self.random
        space = draw.choice(SPACES) if stream.kind.namespaced else ""
        child = stream in (streams.DEPLOYMENTS, streams.SERVICES) and draw.random() < 0.7
        owner = f"wild-{draw.randrange(NAMES)}"
        rank = draw.randrange(3)
        name = f"{owner}-{rank}" if stream is streams.PODS or child else owner
        metadata: dict[str, Any] = {
            "name": name,
            "uid": f"uid-{space}-{stream.name}-{name}",
            "resourceVersion": str(draw.randrange(10**9)),
            "generation": draw.randrange(1, 10**12),
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": self._labels(stream, owner, str(rank)),
            "annotations": {"ullage.dev/world-size": draw.choice(("1", "2", *TEXTS[12:16]))},
        }
        if space:
            metadata["namespace"] = space
        if stream is streams.PODS or draw.random() < 0.3:
            metadata["ownerReferences"] = [self._owner(space, owner)]
        return {
            "apiVersion": stream.kind.api_version,
            "kind": stream.kind.kind,
            "metadata": metadata,
        }

    def _labels(self, stream: Stream, owner: str, rank: str) -> dict[str, Any]:
        """Labels as the operator gives them, one in four forged."""
        draw = self.random
        labels = {
            "ullage.dev/managed": "true",
            "ullage.dev/kind": "TrainingJob",
            "ullage.dev/owner": owner,
            "ullage.dev/rank": rank,
            "ullage.dev/class": draw.choice(("resnet", "x" * 63, "")),
        }
        if stream is streams.NODES:
            labels["ullage.dev/node"] = "true"
        forged = draw.random()
        if forged < 0.1:
            labels["ullage.dev/rank"] = draw.choice(TEXTS[:16])
        elif forged < 0.2:
            labels["ullage.dev/owner"] = draw.choice(("runs", "wild-1", "", "x" * 63))
        elif forged < 0.25:
            labels[draw.choice(("ullage.dev/order", "ullage.dev/lead"))] = "true"
        return labels

    def _owner(self, space: str, name: str) -> dict[str, Any]:
        """A controller, one in four forged: another kind, or a workload of another namespace."""
        draw = self.random
        forged = draw.random()
        kind, uid = "TrainingJob", f"uid-{space}-trainingjobs-{name}"
        if forged < 0.1:
            name, uid = "runs", f"uid-{GOOD_SPACE}-runs"
        elif forged < 0.25:
            kind = draw.choice(("ReplicaSet", "InferenceDeployment", "Node"))
        return {
            "apiVersion": "apps/v1" if kind == "ReplicaSet" else "ullage.dev/v1alpha1",
            "kind": kind,
            "name": name,
            "uid": uid,
            "controller": draw.random() < 0.95,
        }

    def _broken(self, found: Any) -> Any:
        """A copy with one field that is something else, gone, or new."""
        draw = self.random
        path: list[Step] = []
        at = found
        while isinstance(at, (dict, list)) and at and (len(path) < 1 or draw.random() < 0.85):
            step: Step = draw.choice(list(at)) if isinstance(at, dict) else draw.randrange(len(at))
            path.append(step)
            at = at[step]  # type: ignore[index]
        if path[:2] in _NAMING and draw.random() < 0.9:
            return found
        instead = self._instead(at)
        if path[-1:] == ["uid"] and "metadata" in path and instead == f"uid-{GOOD_SPACE}-runs":
            return found  # the API server gives uids, and no two are equal
        return _with(found, path, instead)

    def _instead(self, value: Any) -> Any:
        draw = self.random
        if isinstance(value, str) and draw.random() < 0.4:
            return draw.choice(TEXTS)
        if isinstance(value, (int, float)) and draw.random() < 0.4:
            return draw.choice(NUMBERS)
        if isinstance(value, list) and draw.random() < 0.4:
            return value * draw.choice((0, 2, 50)) + [self.anything(2)]
        if isinstance(value, dict) and draw.random() < 0.4:
            return {**value, draw.choice(_UNKNOWN): self.anything(3)}
        return self.anything(3)


_NAMING: Final = (["metadata", "name"], ["metadata", "uid"], ["metadata", "namespace"])
_KEYS: Final = (
    *("cpu", "memory", "nvidia.com/gpu", "ullage.dev/slot", "ephemeral-storage", "hugepages-2Mi"),
    *("wild-gpu", "good-gpu", "fp16", "a", "pool", "x" * 63, "kubernetes.io/hostname"),
)
_UNKNOWN: Final = (
    *("env", "ports", "volumeMounts", "volumes", "lifecycle", "affinity", "nodeSelector", "image"),
    *("tolerations", "schedulingGates", "terminationGracePeriodSeconds", "priority", "overhead"),
    *("imagePullSecrets", "priorityClassName", "command", "args", "hostname", "subdomain", "name"),
    *("annotations", "labels", "resources", "initContainers", "value", "key", "operator", "other"),
)


def _with(found: Any, path: Sequence[Step], value: Any) -> Any:
    """A copy of the containers along a path, with another value at its end."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(found, dict):
        return {**found, step: _with(found[step], rest, value)}
    copied = list(found)
    copied[step] = _with(copied[step], rest, value)  # type: ignore[index]
    return copied


def raw_bytes(value: Any) -> bytes:
    """The JSON of an object, marks replaced by the bytes that they stand for."""
    return _MARKED.sub(lambda mark: RAW[mark[1].decode()], orjson.dumps(value))
