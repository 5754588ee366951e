# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The committed CRDs, chart templates and reference pages are what the models say."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import yaml

from docs.generate.crds import __main__ as generate
from docs.generate.crds.__main__ import main
from golden_manifests import LOADER
from ullage.api.reasons import ConditionType, Reason

ROOT = Path(__file__).parents[3]
files = cache(generate.files)


@pytest.fixture(autouse=True)
def made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files say the same each time; to make them takes most of the time."""
    monkeypatch.setattr(generate, "files", files)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of an otherwise empty repository."""
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def run(root: Path, *arguments: str) -> int:
    return main([*arguments, "--root", str(root)])


@pytest.mark.slow
def test_committed_files_are_current() -> None:
    assert run(ROOT, "--check") == 0


def test_check_names_what_is_old_and_writes_nothing(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(root) == 0
    old = root / "crds" / "ullage.dev_gpunodes.yaml"
    old.write_text("old")
    capsys.readouterr()
    assert run(root, "--check") == 1
    assert "out of date: crds/ullage.dev_gpunodes.yaml" in capsys.readouterr().out
    assert old.read_text() == "old"


def test_file_of_a_kind_that_is_gone_is_removed(root: Path) -> None:
    assert run(root) == 0
    gone = root / "charts" / "ullage-crds" / "templates" / "ullage.dev_gone.yaml"
    gone.write_text("gone")
    assert run(root, "--check") == 1
    assert run(root) == 0
    assert not gone.exists()


def test_nothing_is_written_outside_a_repository(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(tmp_path)
    assert "no repository root" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_chart_holds_the_same_definitions_and_helm_keeps_them() -> None:
    made = files()
    plain = {path.split("/")[-1]: text for path, text in made.items() if path.startswith("crds/")}
    chart = {p.split("/")[-1]: text for p, text in made.items() if p.startswith("charts/")}
    assert plain.keys() == chart.keys()
    for name, text in chart.items():
        body, bare = yaml.load(text, LOADER), yaml.load(plain[name], LOADER)
        assert body["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert body == bare


def test_reference_lists_every_reason_and_condition() -> None:
    page = files()["docs/reference/reasons.md"]
    for word in (*Reason, *ConditionType):
        assert f"| `{word}` |" in page
