# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Charts as Helm renders them, with nothing but a file system: no cluster, no network."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts" / "ullage"
CRD_CHART: Final = ROOT / "charts" / "ullage-crds"
VALUES_FILES: Final = sorted((CHART / "ci").glob("*.yaml"))
NAMESPACE: Final = "gpu-house"
RELEASE: Final = "ullage"
HOOK: Final = "helm.sh/hook"

Json = dict[str, Any]


class ChartRefused(Exception):
    """Helm's words about a chart or its values."""


class StrictLoader(yaml.CSafeLoader):
    """YAML as the API server reads it: a key that stands twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key) for key, _ in node.value]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"keys that stand twice: {twice}; {node.start_mark}")
        return super().construct_mapping(node, deep)


@dataclass(frozen=True, slots=True)
class Rendered:
    """The objects of one rendering."""

    objects: Sequence[Json]

    def all(self, kind: str) -> list[Json]:
        return [body for body in self.objects if body["kind"] == kind]

    def one(self, kind: str, name: str) -> Json:
        found = [body for body in self.all(kind) if body["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} objects {kind} {name}"
        return found[0]

    def container(self, kind: str, name: str, container: str = "") -> Json:
        """A container of a Deployment, DaemonSet or Job: the one of that name, else the first."""
        found: list[Json] = self.one(kind, name)["spec"]["template"]["spec"]["containers"]
        return next(one for one in found if container in ("", one["name"]))

    def hooks(self) -> list[Json]:
        return [body for body in self.objects if HOOK in annotations(body)]


@dataclass
class Helm:
    """The helm binary, cut off from clusters, registries and the home directory."""

    binary: str
    home: Path
    _seen: dict[tuple[str, ...], Rendered] = field(default_factory=dict)

    def run(self, *arguments: str) -> str:
        dead = "http://127.0.0.1:9"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "KUBECONFIG": str(self.home / "none"),
            "HTTP_PROXY": dead,
            "HTTPS_PROXY": dead,
        }
        command = [self.binary, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode != 0:
            raise ChartRefused(done.stdout + done.stderr)
        return done.stdout

    def template(self, *words: str, chart: Path = CHART, namespace: str = NAMESPACE) -> Rendered:
        """Render; the same question is answered once."""
        command = ("template", RELEASE, str(chart), "--namespace", namespace, *words)
        if command not in self._seen:
            documents = yaml.load_all(self.run(*command), Loader=StrictLoader)
            self._seen[command] = Rendered([body for body in documents if body])
        return self._seen[command]

    def notes(self, *words: str) -> str:
        """What the chart tells whoever installs it; ``helm template`` leaves it out."""
        copy = self.home / "with-notes"
        shutil.copytree(CHART, copy, dirs_exist_ok=True)
        shown = (
            "kind: Notes\ntext: {{ include (print .Template.BasePath `/NOTES.txt`) . | quote }}\n"
        )
        (copy / "templates" / "shown.yaml").write_text(shown, encoding="utf-8")
        (notes,) = self.template(*words, chart=copy).all("Notes")
        text: str = notes["text"]
        return text

    def values(self, values: Mapping[str, Any]) -> Rendered:
        """Render with values given as one mapping."""
        path = self.home / "values.yaml"
        path.write_text(yaml.safe_dump(dict(values)), encoding="utf-8")
        documents = yaml.load_all(
            self.run("template", RELEASE, str(CHART), "--namespace", NAMESPACE, "-f", str(path)),
            Loader=StrictLoader,
        )
        return Rendered([body for body in documents if body])


def annotations(body: Json) -> Mapping[str, str]:
    return body["metadata"].get("annotations") or {}


def environment(container: Json) -> dict[str, str]:
    """The container's variables; those from fields of the pod by the field's path."""
    return {
        item["name"]: item["value"]
        if "value" in item
        else item["valueFrom"]["fieldRef"]["fieldPath"]
        for item in container["env"]
    }


def rules_of(body: Json) -> list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]:
    """Rules of a role as comparable values: groups, resources, verbs."""
    return [
        (tuple(rule["apiGroups"]), tuple(sorted(rule["resources"])), tuple(sorted(rule["verbs"])))
        for rule in body["rules"]
    ]
