# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage support-bundle``: an archive of the decisions' inputs, to send to others.

Only records, as in ``/debug/snapshot``: it includes names of objects, namespaces and images, but no
environments, commands or secrets. ``python -m ullage.app.replay`` repeats the decision.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from rich.console import Console, RenderableType

from ullage.api.times import rfc3339
from ullage.app.replay import to_json
from ullage.cli.forms import OutputFormat
from ullage.cli.look import workloads
from ullage.cli.output import workloads_as
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.model.plan import DecideSettings

FOLDER: Final = "ullage-support"
_WIDTH: Final = 160
_README: Final = """\
snapshot.json  what the operator decides from; python -m ullage.app.replay snapshot.json
status.json    statuses of all workloads
doctor.txt     what the agents checked on their nodes
about.json     version, time and number of objects

Names of objects, namespaces, nodes and images are in these files. Environments, commands and the
contents of secrets are not.
"""


def write(path: Path, seen: Snapshot, checks: RenderableType) -> None:
    """Write the archive, readable only by its owner.

    Args:
        path: Path of the new file (tar, gzip).
        seen: The cluster.
        checks: Checks of the agents, as ``doctor`` shows them.

    Raises:
        OSError: the file exists already, or cannot be written.
    """
    files = _files(seen, checks)
    with path.open("xb") as target:
        path.chmod(0o600)
        with tarfile.open(fileobj=target, mode="w:gz") as archive:
            for name, data in files.items():
                member = tarfile.TarInfo(f"{FOLDER}/{name}")
                member.size, member.mtime, member.mode = len(data), int(seen.taken_at), 0o600
                archive.addfile(member, io.BytesIO(data))


def _files(seen: Snapshot, checks: RenderableType) -> Mapping[str, bytes]:
    epoch = max((node.epoch for node in seen.gpu_nodes.values()), default=0)
    inputs = (seen, seen.taken_at, DecideSettings(epoch=max(1, epoch)))
    about = {
        "version": version("ullage"),
        "takenAt": rfc3339(seen.taken_at),
        "workloads": len(seen.workloads),
        "pods": len(seen.pods),
        "nodes": len(seen.nodes),
        "gpuNodes": len(seen.gpu_nodes),
    }
    table = Console(file=io.StringIO(), width=_WIDTH, record=True)
    table.print(checks)
    return {
        "README.txt": _README.encode(),
        "about.json": (json.dumps(about, indent=2) + "\n").encode(),
        "doctor.txt": table.export_text().encode(),
        "snapshot.json": to_json(inputs),
        "status.json": workloads_as(workloads(seen), OutputFormat.JSON).encode(),
    }
