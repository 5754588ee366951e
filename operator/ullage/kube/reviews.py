# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Asks the API server for the user of a token, and for the permissions of a user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.ports import ClusterPort, JsonObject, Kind
from ullage.process.token_access import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Review

_KINDS: Final = {
    TOKEN_REVIEWS: Kind(
        group="authentication.k8s.io",
        version="v1",
        plural=TOKEN_REVIEWS,
        kind="TokenReview",
        namespaced=False,
    ),
    SUBJECT_ACCESS_REVIEWS: Kind(
        group="authorization.k8s.io",
        version="v1",
        plural=SUBJECT_ACCESS_REVIEWS,
        kind="SubjectAccessReview",
        namespaced=False,
    ),
}


def reviews(cluster: ClusterPort) -> Review:
    """Reviews by the operator's connection."""

    async def review(plural: str, spec: Mapping[str, object]) -> JsonObject:
        return await cluster.create(_KINDS[plural], {"spec": dict(spec)})

    return review
