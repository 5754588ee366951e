# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Images of a release have its name, and their bills say what is installed in them."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pytest
import yaml
from cyclonedx.model.bom import Bom

from demo.images import BASE_PYTHON, BASE_SUITE, TARGETS
from demo.progress import Progress
from release import __main__ as release
from release.__main__ import SUMS, image_names, version, write_sums
from release.images import NAME, Package, excess, packages, renamed
from release.sbom import bill
from unit.packaging.repository import ROOT

SITE = "app/.venv/lib/python3.11/site-packages"
DPKG = """Package: base-files
Status: install ok installed
Version: 12.4

Package: gone
Status: deinstall ok config-files
Version: 1

Package: libc6
Status: install ok installed
Description: text
 Package: no-package
Version: 2.36-9
"""


def metadata(name: str, number: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n\nName: of the text\n"


def tarred(files: dict[str, str | bytes], modes: Mapping[str, int] = MappingProxyType({})) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), modes.get(name, 0o755)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def an_image(
    path: Path,
    *layers: dict[str, str | bytes],
    modes: Mapping[str, int] = MappingProxyType({}),
) -> Path:
    blobs: dict[str, str | bytes] = {}

    def blob(data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return f"sha256:{digest}"

    manifest = {"layers": [{"digest": blob(tarred(layer, modes))} for layer in layers]}
    held = {"digest": blob(json.dumps(manifest).encode()), "annotations": {NAME: "old:dev"}}
    path.write_bytes(tarred({**blobs, "index.json": json.dumps({"manifests": [held]})}))
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return an_image(
        tmp_path / "image.tar",
        {"var/lib/dpkg/status": DPKG},
        {
            f"{SITE}/numpy-2.3.1.dist-info/METADATA": metadata("numpy", "2.3.1"),
            f"./{SITE}/pip-24.0.dist-info/METADATA": metadata("pip", "24.0"),
            f"{SITE}/numpy/METADATA": "Name: none\n",
        },
        {f"{SITE}/.wh.pip-24.0.dist-info": b""},
    )


def test_an_image_tells_what_is_installed_in_it_and_what_is_gone(image: Path) -> None:
    assert packages(image) == [
        Package("deb", "base-files", "12.4"),
        Package("deb", "libc6", "2.36-9"),
        Package("pypi", "numpy", "2.3.1"),
    ]


BARE: Final[tuple[dict[str, str | bytes], ...]] = (
    {"usr/bin/sh": b"", "usr/bin/su": b"", "opt/bin/bash": b"", "usr/bin/python3": b""},
    {"usr/bin/.wh.sh": b"", "./usr/bin/.wh.su": b"", "opt/.wh..wh..opq": b"", "a/bin/true": b""},
)


def test_an_image_whose_last_layer_takes_them_away_has_no_shell(tmp_path: Path) -> None:
    modes = {"usr/bin/su": 0o4755}
    assert excess(an_image(tmp_path / "bare.tar", *BARE, modes=modes)) == []
    assert excess(an_image(tmp_path / "base.tar", *BARE[:1], modes=modes)) == [
        "/opt/bin/bash: a shell",
        "/usr/bin/sh: a shell",
        "/usr/bin/su: runs with the rights of another",
    ]


@pytest.mark.parametrize(
    ("path", "mode", "reason"),
    [
        ("bin/dash", 0o755, "a shell"),
        ("./usr/local/bin/pip3", 0o755, "installs or runs"),
        ("usr/bin/apt-get", 0o755, "installs or runs"),
        ("usr/lib/helper", 0o2755, "rights of another"),
    ],
)
def test_what_comes_back_above_is_seen_and_not_released(
    path: str, mode: int, reason: str, tmp_path: Path
) -> None:
    image = an_image(tmp_path / "image.tar", *BARE, {path: b""}, modes={path: mode})
    (told,) = excess(image)
    assert reason in told
    archives = dict.fromkeys(TARGETS, image)
    with pytest.raises(SystemExit, match=f"is not released: .*{reason}"):
        release.write_images(tmp_path, archives, "", "amd64", Progress())
    assert list(tmp_path.iterdir()) == [image]


def test_text_of_a_shell_is_no_shell(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"usr/share/dpkg/sh": b"", "usr/lib/python3/bash": b""}
    assert excess(an_image(tmp_path / "image.tar", files)) == []


def test_a_renamed_image_is_the_same_image(image: Path, tmp_path: Path) -> None:
    renamed(image, tmp_path / "to.tar", "registry.example/ullage-operator:1.2.3")

    def parts(path: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
        with tarfile.open(path) as archive:
            found = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
        return found, json.loads(found.pop("index.json"))

    (before, old), (after, new) = parts(image), parts(tmp_path / "to.tar")
    assert before == after
    (held,) = new["manifests"]
    assert held["annotations"][NAME] == "registry.example/ullage-operator:1.2.3"
    assert held["digest"] == old["manifests"][0]["digest"]


def test_a_bill_names_every_package_by_its_url(image: Path) -> None:
    body = json.loads(bill("ullage-operator", "1.2.3", packages(image)))
    assert (body["bomFormat"], body["specVersion"]) == ("CycloneDX", "1.6")
    read = Bom.from_json(body)  # type: ignore[attr-defined]
    assert sorted(str(one.purl) for one in read.components) == [
        "pkg:deb/debian/base-files@12.4",
        "pkg:deb/debian/libc6@2.36-9",
        "pkg:pypi/numpy@2.3.1",
    ]
    assert read.metadata.component.name == "ullage-operator"


def test_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "a.tgz").write_bytes(b"a")
    (tmp_path / "b.whl").write_bytes(b"b" * 100_000)
    write_sums(tmp_path)
    write_sums(tmp_path)
    command = ["sha256sum", "--check", "--strict", SUMS]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["a.tgz: OK", "b.whl: OK"]


def test_images_are_named_as_the_chart_asks_for_them() -> None:
    values = yaml.safe_load(
        (ROOT / "charts" / "ullage" / "values.yaml").read_text(encoding="utf-8")
    )
    names = image_names("")
    assert names.keys() == set(TARGETS)
    for part, target in (("operator", "operator"), ("node", "deviceplugin")):
        image = values[part]["image"]
        assert (image["tag"], image["digest"]) == ("", "")  # the chart's appVersion
        assert f"{image['repository']}:{version()}" == names[target]
    assert image_names("registry.example/team/")["operator"] == (
        f"registry.example/team/ullage-operator:{version()}"
    )


def test_the_base_has_no_default_and_the_guides_runs_the_wheels_that_are_fetched() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^ARG BASE.*$", text, re.MULTILINE) == ["ARG BASE"]
    guide = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert f"--build-arg BASE=python:{BASE_PYTHON}-slim-{BASE_SUITE}@sha256:DIGEST " in guide


@pytest.mark.parametrize(
    "base",
    [
        "python:3.11-slim",
        "python",
        "python:3.11@sha256:abc",
        "python@sha512:" + "0" * 64,
        f"python@sha256:{'0' * 64} --privileged",
        "localhost/ullage-base:dev",
    ],
)
def test_a_base_without_a_digest_is_refused_before_anything_is_built(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = tmp_path / SUMS
    last.write_text("of the last release")
    monkeypatch.setattr("sys.argv", ["release", "--folder", str(tmp_path), "--base", base])
    with pytest.raises(SystemExit, match="may be another image tomorrow"):
        release.main()
    assert last.read_text() == "of the last release"


def test_a_release_that_is_refused_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> dict[str, Path]:
        raise SystemExit("images for arm64 cannot be built here")

    last = tmp_path / SUMS
    last.write_text("of the last release")
    monkeypatch.setattr(release, "build_all", refuses)
    monkeypatch.setattr("sys.argv", ["release", "--folder", str(tmp_path), "--platform", "arm64"])
    with pytest.raises(SystemExit, match="cannot be built here"):
        release.main()
    assert last.read_text() == "of the last release"
