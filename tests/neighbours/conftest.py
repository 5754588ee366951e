# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Real neighbours on the local cluster: too dear for every run, see ``make test-neighbours``."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.conftest import cluster, namespace, pytest_runtest_makereport, stack

__all__ = ["cluster", "namespace", "pytest_runtest_makereport", "stack"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs the cluster and a neighbour; their starts may take long."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.neighbours)
            item.add_marker(pytest.mark.timeout(900, func_only=True))
