# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A SchedulingPolicy from a file, read and checked as the operator reads it from the API."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

from ullage.api.readers import WireError
from ullage.api.schedulingpolicy import read_policy_spec
from ullage.cluster.projection.policy import project_policy
from ullage.cluster.records.policy import PolicyRecord
from ullage_simulate.trace import JobTraceError

KIND: Final = "SchedulingPolicy"
MOST_BYTES: Final = 2**20


def policy_rules(path: str) -> PolicyRecord:
    """The rules of a SchedulingPolicy.

    Args:
        path: Path of a YAML or JSON file with one object.

    Raises:
        TraceError: it cannot be read, or is no SchedulingPolicy; the text has the place.
    """
    try:
        with Path(path).open("rb") as stream:
            text = stream.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise JobTraceError(f"{path}: larger than {MOST_BYTES >> 20} MiB")
        body = yaml.safe_load(text)
    except (OSError, yaml.YAMLError, RecursionError, ValueError) as error:
        raise JobTraceError(f"{path}: {error}") from error
    if not isinstance(body, dict) or body.get("kind") != KIND:
        raise JobTraceError(
            f"{path}: expected one {KIND}, as in `kubectl get schedulingpolicy -o yaml`"
        )
    try:
        # the API drops unknown fields; in a file they are mistakes
        read_policy_spec.strictly(body.get("spec") or {})
        # an object that is not applied yet has no uid
        metadata = {"name": "default", "uid": "file", **(body.get("metadata") or {})}
        return project_policy({**body, "metadata": metadata})[1]
    except (WireError, TypeError) as error:
        raise JobTraceError(f"{path}: {error}") from error
