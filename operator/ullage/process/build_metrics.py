# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics that every process has: build information, and resource use of the process."""

from __future__ import annotations

from importlib.metadata import version

from prometheus_client import CollectorRegistry, Info, ProcessCollector


def register_build(registry: CollectorRegistry, component: str) -> None:
    """Add ``ullage_build_info`` and ``process_*`` to a registry.

    Args:
        registry: Registry behind the process's ``/metrics``.
        component: ``operator`` or ``node``, as the chart labels its pods.

    Raises:
        PackageNotFoundError: the program was not installed as a package.
    """
    built = Info("ullage_build", "Version of the program; always 1.", registry=registry)
    built.info({"version": version("ullage"), "component": component})
    ProcessCollector(registry=registry)
