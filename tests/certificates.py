# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Certificates for servers of tests, as kubelet mounts them."""

from __future__ import annotations

import subprocess
from pathlib import Path


def certificate(folder: Path, name: str) -> None:
    """A certificate that signs itself, and its key: ``tls.crt`` and ``tls.key``."""
    folder.mkdir(exist_ok=True)
    words = (
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-nodes", "-days", "2", "-subj", f"/CN={name[:60]}",
        "-addext", f"subjectAltName=DNS:{name}",
        "-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt"),
    )  # fmt: skip
    subprocess.run(words, check=True, capture_output=True)
