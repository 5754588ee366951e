# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Shared readers of raw Kubernetes objects: metadata, strings, conditions, sharing of equals.

Raw JSON is read here with type checks and dropped at once; specs are read as they are declared, by
``ullage.api.spec``. A reader never guesses: a wrong type is a ``WireError`` that names the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from ullage.api.codec import derived, rows
from ullage.api.labels import ANNOTATION_TEMPLATE_HASH, GROUP
from ullage.api.quantity import MIB
from ullage.api.readers import WireError, count_of, flag, objects, quoted, section, text, whole
from ullage.api.readers import bounded as bounded
from ullage.api.reasons import ConditionType
from ullage.api.times import seconds
from ullage.api.wire_fields import Kind
from ullage.api.wire_fields import strings as strings
from ullage.cluster.records.status import Condition
from ullage.cluster.records.workload import WorkloadKind
from ullage.cluster.values.bounded import Memo
from ullage.cluster.values.readable import complete, shown
from ullage.ports import JsonObject

_CONDITION: Final = derived(Condition)
condition_from_wire, condition_to_wire = _CONDITION.read, _CONDITION.write
CONDITIONS: Final = rows(_CONDITION)

Value = TypeVar("Value")
_KINDS: Final = frozenset(WorkloadKind)

_ACCELERATOR: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DOMAIN: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VERSION: Final = re.compile(r"[-a-zA-Z0-9]{1,64}")
NAME_MAX: Final = 253
"""Maximum characters of a Kubernetes name."""
MESSAGE_LIMIT: Final = 1024
"""Maximum characters kept of a foreign text."""


class Sharer:
    """Returns one object for equal values, so that ten thousand equal pods share one shape.

    Bounded by bytes: eviction costs only sharing.
    """

    def __init__(self, limit_bytes: int = 16 * MIB) -> None:
        self._seen: Memo[object, object] = Memo(limit_bytes)

    @property
    def held_bytes(self) -> int:
        """Bytes of the shared values."""
        return self._seen.held_bytes

    def __call__(self, value: Value) -> Value:
        """The first value that equals this one."""
        kept = self._seen.get(value)
        if isinstance(kept, type(value)):
            return kept
        self._seen.put(value, value)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """The controller of an object, as in the object itself; ``group`` is its API group."""

    group: str
    kind: str
    name: str
    uid: str

    @property
    def ours(self) -> bool:
        """True when it is of our API group."""
        return self.group == GROUP

    def names(self, kind: str, name: str) -> bool:
        """True when it names our object with this kind and name, whatever its uid."""
        return self.ours and (self.kind, self.name) == (kind, name)

    @property
    def described(self) -> str:
        """Human-readable kind and name, with the group of a kind that only resembles ours."""
        strange = self.kind in _KINDS and not self.ours
        kind = f"{self.kind}.{self.group}" if strange else self.kind
        return short(f"{kind} {self.name}", 253)


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """Metadata of any object; ``controller`` is its controlling owner."""

    uid: str
    namespace: str
    name: str
    generation: int
    resource_version: str
    created: float
    deleting: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    controller: Controller | None

    @property
    def owner_uid(self) -> str:
        """Uid of our workload that controls the object, empty without one."""
        return self.controller.uid if self.controller is not None and self.controller.ours else ""


@contextmanager
def within(path: str) -> Iterator[None]:
    """Prefix a reader's error with the path of the enclosing object."""
    try:
        yield
    except WireError as error:
        raise WireError(f"{path}.{error}") from error


def string_map(raw: JsonObject, field: str) -> dict[str, str]:
    """Read a map of strings; absent or null is empty.

    Raises:
        WireError: the field is not a map of strings.
    """
    value = section(raw, field)
    entries: dict[str, str] = {}
    for key, item in value.items():
        if not isinstance(item, str):
            raise WireError(f"{field}[{shown(key)}]: expected a string, got {type(item).__name__}")
        entries[key] = item
    return entries


def optional_text(raw: JsonObject, field: str) -> str:
    """Read a string; absent or null is empty.

    Raises:
        WireError: the field is present and not a string.
    """
    value = raw.get(field)
    return "" if value is None else text(raw, field)


def optional_whole(raw: JsonObject, field: str, default: int = 0) -> int:
    """Read a whole number; absent or null is the default.

    Raises:
        WireError: the field is present and not a whole number.
    """
    value = raw.get(field)
    return default if value is None else whole(raw, field)


def word(raw: JsonObject, field: str) -> str:
    """Read a name or a word of Kubernetes; absent or null is empty.

    Raises:
        WireError: the field is not a string, or longer than any name.
    """
    value = optional_text(raw, field)
    if len(value) > NAME_MAX:
        raise WireError(f"{field}: {quoted(value)} is longer than any name")
    return value


def version_of(annotations: Mapping[str, str]) -> str:
    """The template version of an object; empty if it is not ours."""
    version = annotations.get(ANNOTATION_TEMPLATE_HASH, "")
    return version if _VERSION.fullmatch(version) else ""


def is_accelerator(key: str) -> bool:
    """Test for a key of an accelerator, such as nvidia-h100-80gb-hbm3."""
    return _ACCELERATOR.fullmatch(key) is not None


def is_domain(name: str) -> bool:
    """True when a trust domain can have this name."""
    return _DOMAIN.fullmatch(name) is not None


LINE_LIMIT: Final = 200
"""Maximum characters of a quoted log line of a program."""
_LAST_BYTES: Final = 4096


def short(value: str, limit: int = MESSAGE_LIMIT) -> str:
    """A foreign text truncated for a condition."""
    return value if len(value) <= limit else value[: limit - 1] + "…"


def last_line(value: str) -> str:
    """The last informative line of a foreign text, formatted for a sentence of ours."""
    lines = (" ".join(line.split()) for line in reversed(value[-_LAST_BYTES:].splitlines()))
    line = next((line for line in lines if line), "")
    return short("".join(sign if sign.isprintable() else "?" for sign in line), LINE_LIMIT)


def controller_of(metadata: JsonObject) -> Controller | None:
    """The controller of the object, if any.

    Raises:
        WireError: the owner references are malformed.
    """
    for reference in objects(metadata, "ownerReferences"):
        if flag(reference, "controller"):
            version = text(reference, "apiVersion", "")
            return Controller(
                group=version.rpartition("/")[0],
                kind=text(reference, "kind"),
                name=text(reference, "name"),
                uid=text(reference, "uid"),
            )
    return None


def read_meta(raw: JsonObject) -> Meta:
    """Read the metadata of an object that was decoded completely.

    Raises:
        WireError: it was not, name or uid is missing, or a field has the wrong type.
    """
    complete(raw)
    return identity(raw)


def identity(raw: JsonObject) -> Meta:
    """Read an object's metadata, whatever its other fields.

    Raises:
        WireError: name or uid is missing, or a field has the wrong type.
    """
    with within("metadata"):
        metadata = section(raw, "metadata")
        namespace = optional_text(metadata, "namespace")
        return Meta(
            uid=text(metadata, "uid"),
            namespace=namespace,
            name=text(metadata, "name"),
            generation=count_of(metadata, "generation"),
            resource_version=optional_text(metadata, "resourceVersion"),
            created=seconds(metadata.get("creationTimestamp"), "creationTimestamp"),
            deleting=bool(metadata.get("deletionTimestamp")),
            labels=string_map(metadata, "labels"),
            annotations=string_map(metadata, "annotations"),
            controller=controller_of(metadata),
        )


def read_conditions(status: JsonObject) -> tuple[Condition, ...]:
    """Read ``conditions`` of a status in their order.

    Raises:
        WireError: an entry is malformed.
    """
    return cast("tuple[Condition, ...]", CONDITIONS.read(status, "conditions"))


def ranked(types: Iterable[ConditionType]) -> Kind:
    """Conditions of these types, in this order; those of other managers are ignored."""
    rank = {type_.value: at for at, type_ in enumerate(types)}

    def ours(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
        kept = (condition for condition in conditions if condition.type in rank)
        return tuple(sorted(kept, key=lambda condition: rank[condition.type]))

    return Kind(
        lambda raw, _: ours(read_conditions(raw)),
        lambda conditions: [condition_to_wire(condition) for condition in ours(conditions)],
        (),
        schema=CONDITIONS.schema,
    )


def own_conditions(status: JsonObject) -> tuple[Condition, ...]:
    """The same without ``Invalid``, which each reader reports for the object.

    Raises:
        WireError: an entry is malformed.
    """
    return tuple(
        condition
        for condition in read_conditions(status)
        if condition.type != ConditionType.INVALID
    )


def condition_true(status: JsonObject, type_: str) -> bool:
    """Test for a condition of this type with status ``True``.

    Raises:
        WireError: the conditions are malformed.
    """
    return any(
        raw.get("type") == type_ and raw.get("status") == "True"
        for raw in objects(status, "conditions")
    )
