# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A real OCI registry on this machine: the server of the distribution project."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from demo.cluster import LocalCluster
from e2e.stack import eventually
from neighbours.karpenter import process

ADDRESS: Final = "127.0.0.1:19844"
"""Container runtimes speak plain HTTP to this machine without being told."""


@contextmanager
def registry(cluster: LocalCluster, folder: Path) -> Iterator[str]:
    """The server, while this lasts; its blobs lie in a folder. Yields its address."""
    config = {
        "version": 0.1,
        "log": {"level": "info"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "blobs")}},
        "http": {"addr": ADDRESS},
    }
    path = folder / "registry.yml"
    path.write_text(json.dumps(config))  # JSON is YAML
    with process("registry", [str(cluster.tool("registry")), "serve", str(path)], {}):
        eventually(_answers, within_s=20, what="the registry answers")
        yield ADDRESS


def _answers() -> bool:
    try:
        with urllib.request.urlopen(f"http://{ADDRESS}/v2/", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
