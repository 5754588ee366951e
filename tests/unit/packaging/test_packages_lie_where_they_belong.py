# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Seven packages, one wheel, nothing else in it; no folder shadows the standard library."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from pathlib import Path

import pytest

from unit.packaging.repository import PACKAGES, ROOT, project

CODE = {".py", ".pyi", ".proto"}
NEEDED_AT_RUN_TIME = "ullage_node/devices/emulated_hook.sh"
SCRIPTS = {
    NEEDED_AT_RUN_TIME,
    "ullage_katib/proto/regenerate.sh",
    "ullage_node/kubelet/proto/regenerate.sh",
    "ullage_router/proto/regenerate.sh",
}
TABLES = {
    f"ullage_simulate/data/{name}"
    for name in ("NOTICE", "jobs_max_min_fairness.csv", "pairs.json", "solo.json")
}
"""What the simulator knows of speeds; never without the notice of its licence."""

RATES = {"ullage/app/deviceprofiles.json"}
"""Peak rates of known types of device."""

PAGE = {f"ullage/web/{name}" for name in ("index.html", "page.css", "page.js")}
"""The files of the web page."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product's wheel, built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def _names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.mark.parametrize("folder", ["operator", "deviceplugin", "runtime"])
def test_the_folders_are_no_packages_themselves(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()


def test_the_folder_operator_does_not_hide_the_standard_library() -> None:
    code = "import sys; sys.path.insert(0, ''); import operator; print(operator.add(1, 2))"
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "3\n", done.stderr


def test_the_wheel_holds_our_packages_and_no_data_but_tables(wheel: Path) -> None:
    for name in _names(wheel):
        top = name.split("/", 1)[0]
        if top.endswith(".dist-info"):
            continue
        assert top in PACKAGES, name
        typed = name == f"{top}/py.typed"
        assert Path(name).suffix in CODE or typed or name in SCRIPTS | TABLES | RATES | PAGE, name
        assert "test" not in Path(name).parts, name


def test_tables_are_in_the_wheel_the_simulators_with_their_notice(wheel: Path) -> None:
    assert set(_names(wheel)) >= TABLES | RATES | PAGE


def test_the_wheel_holds_every_module(wheel: Path) -> None:
    names = set(_names(wheel))
    for package, folder in PACKAGES.items():
        modules = {f"{package}/{path.relative_to(folder)}" for path in folder.rglob("*.py")}
        assert len(modules) > 3
        assert modules <= names
        assert f"{package}/py.typed" in names


def test_the_hook_of_emulated_devices_is_in_the_wheel(wheel: Path) -> None:
    assert NEEDED_AT_RUN_TIME in _names(wheel)


def test_the_wheel_carries_its_licence(wheel: Path) -> None:
    (licence,) = [name for name in _names(wheel) if name.endswith("licenses/LICENSE")]
    with zipfile.ZipFile(wheel) as archive:
        assert "Apache License" in archive.read(licence).decode()


def test_without_an_extra_the_wheel_needs_nothing(wheel: Path) -> None:
    (metadata,) = [name for name in _names(wheel) if name.endswith("METADATA")]
    with zipfile.ZipFile(wheel) as archive:
        needs = Parser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist", [])
    assert needs
    assert all("extra ==" in need for need in needs)


@pytest.mark.parametrize("module", ["ullage.api.slices", "ullage.api.reasons", "ullage_run"])
def test_it_runs_on_the_standard_library_alone(unpacked: Path, module: str) -> None:
    loaded = _loaded(["-I", "-S"], f"import sys; sys.path.insert(0, {str(unpacked)!r})", module)
    ours = {name for name in loaded if name.startswith("ullage")}
    assert {name.split(".")[0] for name in loaded - ours} <= set(sys.stdlib_module_names) | {
        "__main__"
    }
    assert {name for name in ours if name.startswith("ullage.")} <= {
        "ullage.api",
        "ullage.api.checks",
        "ullage.api.codec",
        "ullage.api.dataio",
        "ullage.api.devices",
        "ullage.api.environment",
        "ullage.api.faults",
        "ullage.api.interruptions",
        "ullage.api.loads",
        "ullage.api.numbers",
        "ullage.api.observations",
        "ullage.api.readers",
        "ullage.api.reasons",
        "ullage.api.slices",
        "ullage.api.steps",
        "ullage.api.usage",
        "ullage.api.times",
        "ullage.api.wire_fields",
        "ullage.api.xids",
    }


def test_the_agent_runs_without_the_operators_libraries() -> None:
    loaded = {name.split(".")[0] for name in _loaded([], "", "ullage_node.serve")}
    assert {"grpc", "aiohttp"} <= loaded
    assert not loaded & {"pydantic", "kubernetes", "scipy"}


@pytest.mark.slow
def test_the_operator_runs_without_a_second_client() -> None:
    loaded = _loaded([], "", "ullage.app.main")
    assert "kubernetes.aio" in loaded
    assert not {name.split(".")[0] for name in loaded} & {"kubernetes_asyncio", "pykube"}


def _loaded(options: Sequence[str], first: str, module: str) -> set[str]:
    """Names of all modules that a fresh interpreter holds after importing one."""
    code = f"{first}\nimport {module}, sys\nprint(*sorted(sys.modules))"
    command = [sys.executable, *options, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.slow
def test_every_command_leads_to_a_function() -> None:
    code = ["import importlib"]
    for target in project()["scripts"].values():
        module, function = target.split(":")
        code.append(f"assert callable(importlib.import_module({module!r}).{function})")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
