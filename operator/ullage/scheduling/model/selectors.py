# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Labels that tie pods and Services to their workload."""

from __future__ import annotations

from ullage.api.labels import LABEL_KIND, LABEL_MANAGED, LABEL_OWNER
from ullage.cluster.records.object_ref import ObjectRef


def owner_labels(owner: ObjectRef) -> dict[str, str]:
    """Labels that tie an object to its workload; also the selector of its Services."""
    return {LABEL_MANAGED: "true", LABEL_KIND: owner.kind, LABEL_OWNER: owner.name}


def selector_text(owner: ObjectRef) -> str:
    """The pods of a workload as a label selector, for ``status.selector``."""
    return ",".join(f"{key}={value}" for key, value in sorted(owner_labels(owner).items()))
