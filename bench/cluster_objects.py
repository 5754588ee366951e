# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads objects of the cluster that a benchmark runs on."""

from __future__ import annotations

import json
from typing import Any

from demo.cluster import Cluster

Json = dict[str, Any]


def get(cluster: Cluster, kind: str, name: str, namespace: str, *words: str) -> Json:
    """An object, or a list of them, as JSON."""
    named = (name,) if name else ()
    found = cluster.kubectl("get", kind, *named, "--namespace", namespace, *words, "-o", "json")
    body: Json = json.loads(found.stdout)
    return body
