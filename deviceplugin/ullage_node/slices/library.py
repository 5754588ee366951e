# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps a copy of ``ullage_run`` on the node, which every container with a slice gets read-only.

So an image does not need our library to count steps: it may import it from there, or the operator
puts its step hook on PYTHONPATH (``spec.runtime.inject``). The copy holds the modules for counting,
standard library only. Its directory is named by its content: containers of an older agent keep
theirs, and a mounted copy is never rewritten or removed: running programs may import from it at any
time. Copies are removed only when a node without slices is retired.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import structlog

from ullage.api.environment import LIBRARY_MOUNT
from ullage_node.model.devices import READ_ONLY, BindMount

FOLDER: Final = "python"
"""Directory of the copies, below the state directory."""
MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "ullage": ("__init__",),
    "ullage.api": (
        "__init__",
        "captures",
        "codec",
        "environment",
        "lanes",
        "numbers",
        "readers",
        "rebalancing",
        "steps",
        "times",
        "wire_fields",
    ),
    "ullage_run": (
        "__init__",
        "lanes",
        "loader_choice",
        "loader_hook",
        "loss_shape",
        "notices",
        "rank_hook",
        "rank_record",
        "record",
        "requests",
        "step_clock",
        "times",
        "torch_hook",
        "trace_hook",
        "uneven",
        "uneven_agreement",
        "uneven_batches",
        "uneven_plan",
    ),
    "ullage_run.autostep": ("sitecustomize",),
}
"""Modules imported to count steps and requests, by package."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Library:
    """The copy on this node; containers also start without one."""

    def __init__(self, state_dir: Path) -> None:
        self._root = state_dir / FOLDER
        self._folder: Path | None = None

    def install(self) -> None:
        """Write the copy unless it exists."""
        try:
            sources = _sources()
            folder = self._root / _digest(sources)
            if not folder.is_dir():
                _write(sources, folder)
        except OSError as error:
            _log.warning("containers get no copy of ullage_run", error=str(error))
            return
        self._folder = folder

    def mount(self) -> tuple[BindMount, ...]:
        """The mount of a container; none where the copy is missing."""
        if self._folder is None or not self._folder.is_dir():
            return ()
        return (
            BindMount(host_path=str(self._folder), container_path=LIBRARY_MOUNT, options=READ_ONLY),
        )

    def remove(self) -> None:
        """Take every copy off the node; no container may have one mounted.

        Raises:
            OSError: something could not be removed; call it again.
        """
        self._folder = None
        if self._root.exists():
            shutil.rmtree(self._root)


def _sources() -> dict[str, bytes]:
    """Content of each file, by its path in the copy."""
    return {
        f"{package.replace('.', '/')}/{module}.py": _source(package, module)
        for package, modules in MODULES.items()
        for module in modules
    }


def _source(package: str, module: str) -> bytes:
    """Source of an installed module; it is not imported, the agent does not use it."""
    top, *below = package.split(".")
    spec = find_spec(top)
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        return Path(folder, *below, f"{module}.py").read_bytes()
    raise FileNotFoundError(f"package {top} is not installed")


def _digest(sources: Mapping[str, bytes]) -> str:
    total = hashlib.sha256()
    for path, content in sorted(sources.items()):
        total.update(f"{path} {len(content)}\n".encode() + content)
    return total.hexdigest()[:16]


def _write(sources: Mapping[str, bytes], folder: Path) -> None:
    """Write a copy to a temporary directory, then move it into place."""
    beside = folder.with_suffix(".new")
    shutil.rmtree(beside, ignore_errors=True)
    for path, content in sources.items():
        target = beside / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o644)
    for directory in (beside, *beside.rglob("*/")):
        directory.chmod(0o755)  # readable for users of containers, whatever the umask
    beside.rename(folder)
