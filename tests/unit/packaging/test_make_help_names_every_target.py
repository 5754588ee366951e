# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import subprocess

from unit.packaging.repository import ROOT


def test_every_target_is_in_make_help() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    phony = {name for line in lines for name in line.split()}
    shown = subprocess.run(
        ["make", "--silent", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[1] for line in shown.splitlines()} == phony
