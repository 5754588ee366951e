# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a release was made from, and signatures with a key of its owner.

The statement is in-toto's with the predicate of SLSA 1.0, in a DSSE envelope where there is a key.
Signatures are those of ``cosign sign-blob --key``: ECDSA over SHA-256, DER, base64. They need no
network, no log and no service: ``cosign verify-blob --key`` or ``openssl dgst`` checks them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://slsa.dev/provenance/v1"
PAYLOAD: Final = "application/vnd.in-toto+json"
BUILD_TYPE: Final = "https://ullage.dev/release/v1"
BUILDER: Final = "https://ullage.dev/release/a-checkout"
"""Who built it, where no one says more: ``python -m release`` on someone's machine."""


class CannotSign(Exception):
    """There is no openssl, or the key is none; the text says which."""


def sha256(path: Path) -> str:
    """Of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def statement(
    subjects: Mapping[str, str],
    *,
    commit: str,
    inputs: Iterable[Path],
    root: Path,
    base: tuple[str, str],
    parameters: Mapping[str, str],
    builder: str = BUILDER,
) -> dict[str, object]:
    """What was made of what.

    Args:
        subjects: SHA-256 of each file, and of each image's manifest by the image's name.
        commit: Of the checkout; empty = it is none of git, or was changed.
        inputs: Files that decide on what is fetched.
        root: Of the checkout; inputs are named from there.
        base: Name and SHA-256 of what the images stand on.
        parameters: As the release was asked for.
        builder: URI of who built it.
    """
    materials: list[dict[str, object]] = [
        {"uri": str(path.relative_to(root)), "digest": {"sha256": sha256(path)}}
        for path in sorted(inputs)
    ]
    materials.append({"uri": base[0], "digest": {"sha256": base[1]}})
    if commit:
        materials.insert(0, {"uri": "git+.", "digest": {"gitCommit": commit}})
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": value}} for name, value in sorted(subjects.items())
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": dict(parameters),
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": builder}},
        },
    }


def commit_of(root: Path) -> str:
    """The commit that a checkout is at; empty where it was changed, or is none of git."""
    git = shutil.which("git")
    if git is None:
        return ""

    def said(*words: str) -> str | None:
        done = subprocess.run([git, "-C", root, *words], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else None

    return said("rev-parse", "HEAD") or "" if said("status", "--porcelain") == "" else ""


def signature(data: bytes, key: Path) -> str:
    """Signature of some bytes, base64.

    Args:
        data: What is signed.
        key: PEM of an EC key on P-256; one with a passphrase is asked for on the terminal.

    Raises:
        CannotSign: there is no openssl, or the key is none.
    """
    try:
        done = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", str(key)], input=data, capture_output=True
        )
    except FileNotFoundError:
        raise CannotSign("openssl signs, and there is none") from None
    if done.returncode:
        raise CannotSign(f"{key}: {done.stderr.decode(errors='replace').strip()[:300]}")
    return base64.b64encode(done.stdout).decode()


def envelope(body: Mapping[str, object], key: Path) -> dict[str, object]:
    """A statement in a signed envelope (DSSE 1.0).

    Raises:
        CannotSign: as :func:`signature`.
    """
    payload = json.dumps(body, sort_keys=True).encode()
    signed = b"DSSEv1 %d %s %d %s" % (len(PAYLOAD), PAYLOAD.encode(), len(payload), payload)
    return {
        "payloadType": PAYLOAD,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"sig": signature(signed, key)}],
    }
