# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The page of GPU nodes names every check of ``kubectl ullage doctor`` and the versions tested."""

from __future__ import annotations

import re

from ullage.cli.prerequisites import CDI_BY_DEFAULT, CDI_BY_SETTING, OLDEST_KUBERNETES
from ullage_node.devices.nvidia.choice import OLDEST_DRIVER
from unit.packaging.repository import ROOT

PAGE = (ROOT / "docs" / "gpu-install.md").read_text(encoding="utf-8")
SOURCES = (
    "operator/ullage/cli/doctor.py",
    "operator/ullage/cli/prerequisites.py",
    "deviceplugin/ullage_node/device_watch.py",
    "deviceplugin/ullage_node/devices/nvidia/checks.py",
)
NAMED = re.compile(
    r"(?:\bname|\btitle)(?:, found)? ?= ?\"([A-Z]\w+)\""
    r"|_(?:check|ok|open|failed)\(\s*\"([A-Z]\w+)\""
)


def test_every_check_stands_in_the_table() -> None:
    names = {
        one or other
        for source in SOURCES
        for one, other in NAMED.findall((ROOT / source).read_text(encoding="utf-8"))
    }
    assert len(names) > 18
    table = {name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.M) for name in row.split("`")}
    assert names - table == set()


def test_the_versions_are_those_that_the_local_cluster_builds() -> None:
    for component, module in (
        ("kubernetes", "k8s.io/kubernetes"),
        ("containerd", "containerd/v2"),
        ("runc", "opencontainers/runc"),
    ):
        pinned = (ROOT / "localcluster" / "components" / component / "go.mod").read_text()
        found = re.search(rf"{re.escape(module)} v([0-9.]+)", pinned)
        assert found is not None
        assert found[1] in PAGE, component


def test_the_bounds_are_those_of_the_checks() -> None:
    kubernetes, by_default, by_setting = (
        f"{major}.{minor}" for major, minor in (OLDEST_KUBERNETES, CDI_BY_DEFAULT, CDI_BY_SETTING)
    )
    assert f"| Kubernetes | {kubernetes} or newer |" in PAGE
    assert f"containerd {by_default.removesuffix('.0')}, or containerd {by_setting}" in PAGE
    assert f"branch {OLDEST_DRIVER} or newer" in PAGE
