# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Builds helm once and renders the chart as it comes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from chart.rendered import ROOT, Helm, Rendered

BUILD_SECONDS = 900
"""Helm is compiled on a machine that has never done it; every later run finds it built."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.timeout(BUILD_SECONDS))


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    command = [str(ROOT / "localcluster" / "run"), "build", "--tools", "helm"]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    paths = dict(line.split(maxsplit=1) for line in built.stdout.splitlines())
    return Helm(paths["helm"], tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def rendered(helm: Helm) -> Rendered:
    """The chart with its own values."""
    return helm.template()


@pytest.fixture(scope="session")
def emulated(helm: Helm) -> Rendered:
    """The chart on a cluster without GPUs."""
    return helm.template("--set", "node.backend=emulated")
