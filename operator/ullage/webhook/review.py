# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An AdmissionReview (``admission.k8s.io/v1``) and the answer to it.

Every answer allows the pod: the API server reports its errors, by its policies.
"""

from __future__ import annotations

import base64
from typing import Final

import orjson

from ullage.api.readers import JsonObject, WireError, section, text
from ullage.webhook.mutation import mutation

VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
LONGEST_UID: Final = 128
LONGEST_WARNING: Final = 200
"""Maximum characters; the API server truncates longer ones."""


def answer(body: bytes) -> bytes:
    """Answer a review with the patch that prepares its pod.

    An unreadable pod is admitted unchanged, with a warning for its creator.

    Raises:
        WireError: the body is no review.
    """
    uid, request = request_of(body)
    more: dict[str, object] = {}
    try:
        patch = mutation(_new_pod(request))
    except WireError as error:
        more["warnings"] = [f"not prepared to share devices: {error}"[:LONGEST_WARNING]]
    else:
        if patch:
            encoded = base64.b64encode(orjson.dumps(patch)).decode()
            more |= {"patchType": "JSONPatch", "patch": encoded}
    return allowed(uid, more)


def allowed(uid: str, more: JsonObject) -> bytes:
    """The answer that admits an object, with warnings or a patch."""
    response = {"uid": uid, "allowed": True, **more}
    return orjson.dumps({"apiVersion": VERSION, "kind": KIND, "response": response})


def request_of(body: bytes) -> tuple[str, JsonObject]:
    """The uid of a review, and its request.

    Raises:
        WireError: the body is no review.
    """
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:  # deep nesting raises it, too
        raise WireError(f"no JSON: {error}") from error
    if not isinstance(review, dict):
        raise WireError(f"expected an object, got {type(review).__name__}")
    if (review.get("apiVersion"), review.get("kind")) != (VERSION, KIND):
        raise WireError(f"expected {KIND} of {VERSION}")
    request = section(review, "request")
    uid = text(request, "uid")
    if not 0 < len(uid) <= LONGEST_UID:
        raise WireError(f"request.uid: {len(uid)} characters are none of the API server's")
    return uid, request


def _new_pod(request: JsonObject) -> JsonObject:
    """The pod that is being created; empty for a review of another kind."""
    resource = section(request, "resource")
    is_pod = (resource.get("group"), resource.get("resource")) == ("", "pods")
    if not is_pod or request.get("subResource") or request.get("operation") != "CREATE":
        return {}
    return section(request, "object")
