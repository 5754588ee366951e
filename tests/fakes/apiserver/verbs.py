# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What create, update, patch, apply and delete do to stored objects; no HTTP here."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from fakes.apiserver import fields
from fakes.apiserver.admission import Admission
from fakes.apiserver.errors import Refusal, changed, exists, invalid, not_found
from fakes.apiserver.fields import Owner, Path
from fakes.apiserver.patches import json_patch, merge_patch
from fakes.apiserver.resources import Resource
from fakes.apiserver.schema import Schemas
from fakes.apiserver.store import Key, Store, Stored

Obj = dict[str, Any]
_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One object, or one subresource of it."""

    resource: Resource
    namespace: str
    name: str
    subresource: str = ""

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)


def _copy(stored: Stored) -> Obj:
    obj: Obj = orjson.loads(stored.raw)
    return obj


class Verbs:
    """Write verbs over one store."""

    def __init__(self, store: Store, schemas: Schemas, now: Callable[[], str]) -> None:
        self.store = store
        self._schemas = schemas
        self._admission = Admission(schemas)
        self._now = now
        self.removed: Callable[[str], None] = lambda uid: None

    def live(self, target: Target) -> Stored:
        stored = self.store.get(target.resource, target.key)
        if stored is None:
            raise not_found(_qualified(target.resource), target.name)
        return stored

    def create(
        self, resource: Resource, namespace: str, body: Obj, manager: str, *, strict: bool = False
    ) -> Stored:
        """Store a new object; generateName is honoured, status is not."""
        target, obj = self._new(resource, namespace, body, strict=strict)
        return self._store_new(target, obj, self._owner(target, manager, "Update"), None)

    def rehearse(self, resource: Resource, namespace: str, body: Obj, *, strict: bool) -> Obj:
        """A new object as it would be stored, by a server without further admission."""
        target, new = self._new(resource, namespace, body, strict=strict)
        return self._admitted(target, new, self._now())

    def _new(
        self, resource: Resource, namespace: str, body: Obj, *, strict: bool
    ) -> tuple[Target, Obj]:
        self._check_type(resource, body)
        if strict:
            self._schemas.strict(resource, body)
        obj: Obj = {**body, "metadata": dict(body.get("metadata") or {})}
        meta = obj["metadata"]
        if not meta.get("name"):
            if not meta.get("generateName"):
                raise invalid(resource.qualified_kind, "", "name or generateName is required")
            meta["name"] = meta["generateName"] + uuid.uuid4().hex[:5]
        if meta.get("resourceVersion"):
            raise Refusal(400, "resourceVersion should not be set on objects to be created")
        target = Target(resource=resource, namespace=namespace, name=meta["name"])
        if self.store.get(resource, target.key):
            raise exists(_qualified(resource), target.name)
        if resource.status:
            obj.pop("status", None)
        return target, obj

    def update(self, target: Target, body: Obj, manager: str) -> Stored:
        """Replace an object or its status; the version in the body must be the current one."""
        self._check_type(target.resource, body)
        live = self.live(target)
        meta = body.get("metadata") or {}
        if not meta.get("resourceVersion") and target.resource.custom:
            raise invalid(
                target.resource.qualified_kind,
                target.name,
                "metadata.resourceVersion: Invalid value: 0: must be specified for an update",
            )
        self._check_uid(target, live, meta.get("uid"), 409)
        return self._commit(target, live, body, self._owner(target, manager, "Update"), None)

    def patch(self, target: Target, patch: Any, manager: str, *, merge: bool) -> Stored:
        """Apply a JSON patch or a merge patch."""
        live = self.live(target)
        before = _copy(live)
        body = merge_patch(before, patch) if merge else json_patch(before, patch)
        self._check_uid(target, live, body.get("metadata", {}).get("uid"), 422)
        return self._commit(target, live, body, self._owner(target, manager, "Update"), None)

    def apply(self, target: Target, config: Obj, manager: str, *, force: bool) -> Stored:
        """Server-side apply; creates the object unless the body bears a uid."""
        if not manager:
            raise Refusal(
                422,
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required '
                "for apply patch",
            )
        self._check_type(target.resource, config, required=True)
        stored = self.store.get(target.resource, target.key)
        meta = dict(config.get("metadata") or {})
        if meta.get("managedFields"):
            raise Refusal(400, "metadata.managedFields must be nil")
        if stored is None and target.subresource:
            raise not_found(_qualified(target.resource), target.name)
        if stored is None and meta.get("uid"):
            raise Refusal(
                409,
                f"Operation cannot be fulfilled on {_qualified(target.resource)} "
                f'"{target.name}": uid mismatch: the provided object specified uid {meta["uid"]}, '
                "and no existing object was found",
            )
        self._schemas.fits(target.resource, config, target.name)
        if stored is not None:
            # The status of a custom resource takes no metadata, so no uid is compared.
            if not (target.resource.custom and target.subresource == "status"):
                self._check_uid(target, stored, meta.get("uid"), 422)
            self._check_version(target, stored, meta.get("resourceVersion"))
        for unowned in ("uid", "resourceVersion"):
            meta.pop(unowned, None)
        meta["name"] = target.name
        wanted = self._only_part({**config, "metadata": meta}, target)
        owner = self._owner(target, manager, "Apply")
        shape = self._schemas.shape(target.resource)
        live = _copy(stored) if stored else {}
        result, owned = fields.apply(live, wanted, shape=shape, owner=owner, force=force)
        if stored is None:
            return self._store_new(target, result, owner, owned)
        return self._commit(target, stored, result, owner, owned)

    def delete(self, target: Target, options: Obj) -> Stored:
        """Delete, or mark as being deleted while finalizers or a grace period hold it."""
        live = self.live(target)
        conditions = options.get("preconditions") or {}
        meta = live.obj["metadata"]
        for key in ("uid", "resourceVersion"):
            if conditions.get(key) and conditions[key] != meta[key]:
                raise Refusal(
                    409,
                    f"Operation cannot be fulfilled on {_qualified(target.resource)} "
                    f'"{target.name}": the {key.upper() if key == "uid" else "ResourceVersion"} in '
                    f"the precondition ({conditions[key]}) does not match the {key} in record "
                    f"({meta[key]}). The object might have been deleted and then recreated",
                )
        grace = _grace(target.resource, live.obj, options.get("gracePeriodSeconds"))
        if not meta.get("finalizers") and grace == 0:
            return self._remove(target)
        if meta.get("deletionTimestamp") and grace >= meta.get("deletionGracePeriodSeconds", 0):
            return live
        obj = _copy(live)
        obj["metadata"]["deletionTimestamp"] = self._now()
        obj["metadata"]["deletionGracePeriodSeconds"] = grace
        return self.store.put(target.resource, target.key, obj)

    def _remove(self, target: Target) -> Stored:
        stored = self.store.remove(target.resource, target.key)
        self.removed(stored.obj["metadata"]["uid"])
        return stored

    def _store_new(
        self, target: Target, obj: Obj, owner: Owner, applied: frozenset[Path] | None
    ) -> Stored:
        resource, now = target.resource, self._now()
        obj = self._admitted(target, obj, now)
        obj["metadata"]["managedFields"] = fields.owned_after(
            {}, obj, shape=self._schemas.shape(resource), owner=owner, now=now, applied=applied
        )
        return self.store.put(resource, target.key, obj)

    def _admitted(self, target: Target, obj: Obj, now: str) -> Obj:
        """A new object with its identity, after admission."""
        resource = target.resource
        obj = {
            "apiVersion": resource.kind.api_version,
            "kind": resource.kind.kind,
            **{key: value for key, value in obj.items() if key not in ("apiVersion", "kind")},
        }
        meta: Obj = obj["metadata"]
        meta.pop("managedFields", None)
        meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": now, "name": target.name}
        if resource.status:
            meta["generation"] = 1
        if target.namespace:
            meta["namespace"] = target.namespace
        self._admission.admit(resource, None, obj, now)
        return obj

    def _commit(
        self, target: Target, live: Stored, body: Obj, owner: Owner, applied: frozenset[Path] | None
    ) -> Stored:
        """Turn a wished-for state into the stored one, or leave all as it is if nothing changes."""
        resource = target.resource
        self._check_version(target, live, (body.get("metadata") or {}).get("resourceVersion"))
        before = _copy(live)
        after = self._writable(target, before, body)
        self._admission.admit(resource, before, after, self._now())
        if _content(after) != _content(before) and resource.status:
            after["metadata"]["generation"] = before["metadata"].get("generation", 0) + 1
        after["metadata"]["managedFields"] = fields.owned_after(
            before,
            after,
            shape=self._schemas.shape(resource),
            owner=owner,
            now=self._now(),
            applied=applied,
        )
        if after == before:
            return live
        done = after["metadata"]
        if done.get("deletionTimestamp") and not done.get("finalizers"):
            grace = done.get("deletionGracePeriodSeconds", 0)
            if grace == 0:
                self.store.put(resource, target.key, after)
                return self._remove(target)
        return self.store.put(resource, target.key, after)

    def _writable(self, target: Target, before: Obj, body: Obj) -> Obj:
        """The body with everything this write may not touch taken from the stored object."""
        if target.subresource == "status":
            kept: Obj = {**before, "metadata": dict(before["metadata"])}
            kept.pop("status", None)
            if "status" in body:
                kept["status"] = orjson.loads(orjson.dumps(body["status"]))
            return kept
        after: Obj = orjson.loads(orjson.dumps(body))
        after["apiVersion"], after["kind"] = before["apiVersion"], before["kind"]
        if target.resource.status:
            after.pop("status", None)
            if "status" in before:
                after["status"] = before["status"]
        meta = after.setdefault("metadata", {})
        old = before["metadata"]
        for name in (*_SERVER_OWNED, "resourceVersion", "name", "namespace", "generation"):
            meta.pop(name, None)
            if name in old:
                meta[name] = old[name]
        return after

    def _only_part(self, config: Obj, target: Target) -> Obj:
        """An apply to a subresource sets nothing else, and one to the object no status."""
        out: Obj = {key: config[key] for key in ("apiVersion", "kind") if key in config}
        if target.subresource == "status":
            out["metadata"] = {"name": target.name}
            return out | ({"status": config["status"]} if "status" in config else {})
        return {k: v for k, v in config.items() if k != "status" or not target.resource.status}

    def _owner(self, target: Target, manager: str, operation: str) -> Owner:
        return Owner(
            manager=manager or "unknown",
            operation=operation,
            subresource=target.subresource,
            api_version=target.resource.kind.api_version,
        )

    def _check_type(self, resource: Resource, body: Obj, *, required: bool = False) -> None:
        kind = resource.kind
        for key, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
            if body.get(key, None if required else wanted) != wanted:
                raise Refusal(
                    400, f"the {key} in the data ({body.get(key)}) does not match ({wanted})"
                )

    def _check_version(self, target: Target, live: Stored, version: str | None) -> None:
        if version and version != live.obj["metadata"]["resourceVersion"]:
            raise changed(_qualified(target.resource), target.name)

    def _check_uid(self, target: Target, live: Stored, uid: str | None, status: int) -> None:
        known = live.obj["metadata"]["uid"]
        if not uid or uid == known:
            return
        if status == 409:
            raise Refusal(
                409,
                f"Operation cannot be fulfilled on {_qualified(target.resource)} "
                f'"{target.name}": Precondition failed: UID in precondition: {uid}, UID in object '
                f"meta: {known}",
            )
        raise invalid(
            target.resource.qualified_kind,
            target.name,
            f'metadata.uid: Invalid value: "{uid}": field is immutable',
        )


def _qualified(resource: Resource) -> str:
    return ".".join(part for part in (resource.plural, resource.kind.group) if part)


def _content(obj: Obj) -> Obj:
    """What counts for the generation."""
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def _grace(resource: Resource, obj: Obj, wanted: int | None) -> int:
    """Seconds a deletion waits; only a bound pod that has not finished has any."""
    spec, phase = obj.get("spec") or {}, (obj.get("status") or {}).get("phase")
    if resource.plural != "pods" or not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    return int(spec.get("terminationGracePeriodSeconds", 30) if wanted is None else wanted)
