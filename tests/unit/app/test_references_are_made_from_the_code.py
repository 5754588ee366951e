# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pages, roles and accepted settings say what the code does, and a stale one is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from docs.generate.__main__ import ROLES, SCHEMA, files, main, values_schema
from docs.generate.facts import FactsMissing, MetricFact, Setting, attribute_texts, metric_facts
from docs.generate.operator import operator_settings
from docs.generate.pages import settings_page
from ullage.app.settings import PREFIX, Settings, settings_from
from ullage.kube.permissions import REQUIRED_VERBS
from ullage.process.environment import SettingsError, variables

ROOT = Path(__file__).resolve().parents[3]
SOURCES = (
    "pyproject.toml",
    "operator/ullage/app/settings.py",
    "deviceplugin/ullage_node/settings.py",
    "charts/ullage/values.schema.json",
    "charts/ullage/values.yaml",
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A repository with what the pages are made of, and with the pages."""
    for name in SOURCES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "docs/reference").mkdir(parents=True)
    (tmp_path / ROLES).parent.mkdir(parents=True)
    assert main(["--root", str(tmp_path)]) == 0
    return tmp_path


def test_the_committed_files_are_up_to_date() -> None:
    for path, content in files(ROOT).items():
        assert (ROOT / path).read_text(encoding="utf-8") == content, f"make generate: {path}"


def test_a_stale_page_is_named_and_left_alone(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = copy / "docs/reference/metrics.md"
    page.write_text("old\n", encoding="utf-8")
    assert main(["--check", "--root", str(copy)]) == 1
    assert "out of date: docs/reference/metrics.md" in capsys.readouterr().out
    assert page.read_text(encoding="utf-8") == "old\n"


def test_writing_twice_changes_nothing(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["--root", str(copy)]) == 0
    assert "written" not in capsys.readouterr().out


def test_a_setting_without_a_docstring_is_refused(copy: Path) -> None:
    source = copy / "operator/ullage/app/settings.py"
    code = source.read_text(encoding="utf-8")
    source.write_text(
        code.replace('    """Writes a second, on average."""\n', ""), encoding="utf-8"
    )
    with pytest.raises(FactsMissing, match=r"WriteSettings\.per_second"):
        operator_settings(copy)


def test_another_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--root", str(tmp_path)])
    assert "no repository root" in capsys.readouterr().err


def test_every_variable_stands_on_the_page_with_its_default() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    names = [variable.name for variable in variables(Settings, PREFIX)]
    assert all(f"| `{name}` |" in page for name in names)
    assert "| `ULLAGE_WRITE_PER_SECOND` | number | `50.0` | `operator.settings` |" in page
    assert "| `ULLAGE_NODE_NAME` | text | required | fixed by the chart |" in page
    assert "one of nvidia, emulated" in page


def test_choices_of_a_setting_are_those_it_takes() -> None:
    (levels,) = [item for item in operator_settings(ROOT) if item.choices]
    for level in levels.choices:
        assert settings_from({levels.variable: level}).log_level == level
    with pytest.raises(SettingsError):
        settings_from({levels.variable: "trace"})


def test_every_verb_stands_on_the_page_of_rights() -> None:
    page = (ROOT / "docs/reference/rbac.md").read_text(encoding="utf-8")
    for permission in REQUIRED_VERBS:
        rows = [line for line in page.splitlines() if f"`{permission.resource}`" in line]
        assert permission.verb in rows[0]
        assert any(permission.verb in row and permission.why in row for row in rows), "its reason"


def test_metrics_are_named_as_prometheus_names_them() -> None:
    exposition = "\n".join(
        (
            "# HELP a_total Things.",
            "# TYPE a_total counter",
            'a_total{kind="x"} 1',
            "# HELP b Sizes.",
            "# TYPE b histogram",
            'b_bucket{le="+Inf",gpu="g"} 0',
            "# TYPE b_created gauge",
            "b_created 1",
            "",
        )
    )
    assert metric_facts(exposition) == [
        MetricFact(name="a_total", kind="counter", labels=["kind"], meaning="Things."),
        MetricFact(name="b", kind="histogram", labels=["gpu"], meaning="Sizes."),
    ]


@pytest.mark.parametrize(
    "exposition",
    ["# HELP a Things.\n# TYPE a gauge\n", "# TYPE a gauge\na 1\n"],
    ids=["no sample", "no text"],
)
def test_a_metric_without_text_or_example_is_refused(exposition: str) -> None:
    with pytest.raises(FactsMissing, match="metric a "):
        metric_facts(exposition)


def test_no_metric_is_labelled_with_a_pod_or_a_workload() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| `ullage_")]
    labels = {word.strip(" `") for row in rows for word in row[2].split(",")}
    assert len(rows) > 25
    assert not labels & {"pod", "pod_uid", "name", "namespace", "container", "job", "workload"}


def test_only_docstrings_under_fields_count(tmp_path: Path) -> None:
    source = tmp_path / "s.py"
    source.write_text(
        'class A:\n    """Of A."""\n    x: int = 1\n    """Of\n    x."""\n'
        "    y: int = 2\n    z = 3\n",
        encoding="utf-8",
    )
    assert attribute_texts(source) == {("A", "x"): "Of x."}


def test_the_schema_takes_only_what_has_no_other_value() -> None:
    rows = [_setting("ULLAGE_WRITE_PER_SECOND"), _setting("ULLAGE_LOG_LEVEL", "debug", "info")]
    tree = json.loads(values_schema('{"definitions": {"strings": {}}}', "{}", operator=rows))
    assert tree["definitions"]["strings"] == {}
    taken = tree["definitions"]["operatorSettings"]
    assert taken["additionalProperties"] is False
    assert list(taken["properties"]) == ["ULLAGE_WRITE_PER_SECOND"]
    assert json.loads((ROOT / SCHEMA).read_text(encoding="utf-8"))["definitions"]["nodeSettings"]


def test_a_bar_in_a_text_does_not_break_the_table() -> None:
    page = settings_page([_setting("ULLAGE_X")], [])
    (row,) = [line for line in page.splitlines() if "ULLAGE_X" in line]
    assert row.replace("\\|", "").count("|") == 6


def _setting(variable: str, *choices: str) -> Setting:
    return Setting(
        variable=variable, kind="number", choices=choices, default="1", meaning="This | that."
    )
