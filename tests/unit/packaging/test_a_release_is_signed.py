# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who has the public key can tell that a release is the owner's, and what it was made from."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Final

import pytest

from release import __main__ as release
from release.__main__ import PROVENANCE, SIGNATURE, SUMS
from release.images import manifest_digest
from release.provenance import BUILDER, PAYLOAD, CannotSign, sha256, signature
from unit.packaging.repository import ROOT
from unit.packaging.test_a_release_is_whole import an_image

BASE: Final = ("python:3.11-slim", "b" * 64)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "release.key"
    words = ["openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", str(path)]
    subprocess.run(words, check=True)
    public = str(path.with_suffix(".pub"))
    subprocess.run(
        ["openssl", "ec", "-in", str(path), "-pubout", "-out", public],
        check=True,
        capture_output=True,
    )
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "release"
    made.mkdir()
    an_image(made / f"ullage-operator-{release.version()}-amd64.oci.tar", {"a": "b"})
    (made / "ullage.tgz").write_bytes(b"a chart")
    (made / "ullage-crds.tgz").write_bytes(b"another chart")
    return made


def verified(data: bytes, signed: str, key: Path, tmp_path: Path) -> bool:
    """As ``cosign verify-blob --key`` does it: ECDSA over SHA-256."""
    (tmp_path / "sig").write_bytes(base64.b64decode(signed))
    words = ["-verify", str(key.with_suffix(".pub")), "-signature", str(tmp_path / "sig")]
    return subprocess.run(["openssl", "dgst", "-sha256", *words], input=data).returncode == 0


def test_a_signature_covers_every_file(folder: Path, key: Path, tmp_path: Path) -> None:
    sums, signed = release.write_proofs(folder, "", {}, base=BASE, key=key, builder=BUILDER)
    named = {line.split()[1] for line in sums.read_text().splitlines()}
    assert named == {path.name for path in folder.iterdir()} - {SUMS, SIGNATURE}
    assert verified(sums.read_bytes(), signed.read_text(), key, tmp_path)
    assert not verified(sums.read_bytes() + b"\n", signed.read_text(), key, tmp_path)
    assert release.write_sums(folder).read_bytes() == sums.read_bytes(), "a second look is the same"


def test_each_image_and_chart_has_a_signature_of_its_own(
    folder: Path, key: Path, tmp_path: Path
) -> None:
    sums, _ = release.write_proofs(folder, "", {}, base=BASE, key=key, builder=BUILDER)
    alone = {*folder.glob("*.oci.tar"), *folder.glob("*.tgz")}
    assert len(alone) == 3
    listed = sums.read_text()
    body = json.loads((folder / PROVENANCE).read_text())
    subjects = {one["name"] for one in json.loads(base64.b64decode(body["payload"]))["subject"]}
    signatures = {}
    for path in alone:
        beside = path.with_name(f"{path.name}.sig")
        signatures[path] = beside.read_text()
        assert verified(path.read_bytes(), signatures[path], key, tmp_path)
        assert {path.name, beside.name} <= subjects
        assert all(f"{sha256(file)}  {file.name}\n" in listed for file in (path, beside))
    chart, other_chart = folder / "ullage.tgz", folder / "ullage-crds.tgz"
    assert not verified(chart.read_bytes(), signatures[other_chart], key, tmp_path)
    found = {path.name for path in folder.glob("*.sig")} - {SIGNATURE}
    assert found == {f"{path.name}.sig" for path in alone}, "the rest is in the checksums"


def test_the_provenance_names_files_images_and_what_they_are_made_from(
    folder: Path, key: Path, tmp_path: Path
) -> None:
    release.write_provenance(
        folder,
        "registry.example/u",
        {"platform": "amd64"},
        base=BASE,
        key=key,
        builder="https://b.example",
    )
    held = json.loads((folder / PROVENANCE).read_text())
    assert held["payloadType"] == PAYLOAD
    payload = base64.b64decode(held["payload"])
    encoded = b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(payload), payload)
    assert verified(encoded, held["signatures"][0]["sig"], key, tmp_path)
    body = json.loads(payload)
    assert body["_type"] == "https://in-toto.io/Statement/v1"
    assert body["predicateType"] == "https://slsa.dev/provenance/v1"
    subjects = {one["name"]: one["digest"]["sha256"] for one in body["subject"]}
    archive = next(folder.glob("*.oci.tar"))
    image = f"registry.example/u/ullage-operator:{release.version()}"
    assert subjects == {
        archive.name: sha256(archive),
        **{path.name: sha256(path) for path in folder.glob("*.tgz")},
        image: manifest_digest(archive),
    }
    definition = body["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {"platform": "amd64"}
    made_from = {one["uri"]: one["digest"] for one in definition["resolvedDependencies"]}
    assert made_from["Dockerfile"] == {"sha256": sha256(ROOT / "Dockerfile")}
    assert "requirements/operator.txt" in made_from
    assert made_from[BASE[0]] == {"sha256": BASE[1]}
    assert body["predicate"]["runDetails"]["builder"] == {"id": "https://b.example"}


def test_without_a_key_the_provenance_is_plain_and_nothing_is_signed(folder: Path) -> None:
    (sums,) = release.write_proofs(folder, "", {}, base=BASE, key=None, builder=BUILDER)
    assert PROVENANCE in sums.read_text()
    assert json.loads((folder / PROVENANCE).read_text())["_type"]
    assert list(folder.glob("*.sig")) == []


def test_a_key_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "none").write_text("no key")
    with pytest.raises(CannotSign, match="none"):
        signature(b"x", tmp_path / "none")
