# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Mutants of the safety core: each breaks one rule of admission or enforcement, and a test fails.

``make mutants`` changes one line at a time in a copy of the code and runs the tests that guard it.
It ends with an error when a mutant survives, or when its line is not there any more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = ("operator", "deviceplugin", "runtime")
ENGINE: Final = "operator/ullage/engines/admission"
NVIDIA: Final = "deviceplugin/ullage_node/devices/nvidia"
GUARD: Final = "deviceplugin/ullage_node/guard"
MOST_S: Final = 600.0
"""Seconds of one mutant's tests."""

ADMISSION: Final = ("tests/unit/engines/admission", "tests/property/test_prior_invariants.py")
LIMITS: Final = (
    "tests/unit/engines/admission",
    "tests/property/test_one_admission_chain.py",
    "tests/property/test_admission_never_overcommits.py",
)
PROOF: Final = ("tests/unit/node/devices", "tests/contract/devices")
PAUSES: Final = ("tests/unit/node/guard", "tests/property/node")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule that is broken, the line that breaks it, and the tests that must notice."""

    rule: str
    file: str
    line: str
    instead: str
    tests: Sequence[str]


MUTANTS: Final = (
    Mutant(
        "a tenant's bandwidth falls as it slows down",
        f"{ENGINE}/prior.py",
        "memory += min(KNEE, print_.dram) * _slower(side) / KNEE",
        "memory += min(KNEE, print_.dram) / KNEE",
        ADMISSION,
    ),
    Mutant(
        "uneven arrivals make the queue longer",
        f"{ENGINE}/queue_map.py",
        "spread = (load.cv2 + service.cv2) / 2",
        "spread = (1.0 + service.cv2) / 2",
        ADMISSION,
    ),
    Mutant(
        "a certificate has its confidence",
        f"{ENGINE}/calibration.py",
        "while binomial_tail(violations, rows, eps) > 1 - confidence:",
        "while binomial_tail(violations, rows, eps) > 2 * (1 - confidence):",
        ADMISSION,
    ),
    Mutant(
        "too few trials give no certificate",
        f"{ENGINE}/calibration.py",
        "return max(LEAST_TRIALS, rows_needed(1, eps, confidence))",
        "return rows_needed(0, eps, confidence)",
        ADMISSION,
    ),
    Mutant(
        "nothing passes below its margin",
        f"{ENGINE}/margin.py",
        "return self.z >= self.required",
        "return self.z >= self.required - 0.5",
        ADMISSION,
    ),
    Mutant(
        "three tenants are judged by rows of three",
        f"{ENGINE}/novelty.py",
        "if len(classes) > 2:",
        "if len(classes) > 3:",
        ADMISSION,
    ),
    Mutant(
        "two families that never met are a new configuration",
        f"{ENGINE}/novelty.py",
        "return Group.NEW_CONFIG if strangers else Group.KNOWN",
        "return Group.KNOWN",
        ADMISSION,
    ),
    Mutant(
        "a class that faulted a shared device gets no trial",
        f"{ENGINE}/probation.py",
        "if account.faults:",
        "if account.faults > 9:",
        ADMISSION,
    ),
    Mutant(
        "shares add up to the limit at most",
        f"{ENGINE}/limits.py",
        "return facts.percent_used + request.min_percent - request.percent_limit",
        "return facts.percent_used + request.min_percent - request.percent_limit - 1",
        LIMITS,
    ),
    Mutant(
        "the contexts of a newcomer fit",
        f"{ENGINE}/limits.py",
        "return facts.contexts_used + request.contexts - facts.contexts",
        "return facts.contexts_used - facts.contexts",
        LIMITS,
    ),
    Mutant(
        "only one trust domain shares a device",
        f"{ENGINE}/limits.py",
        "return facts.sharers * (1 - _is_among(facts.domain, (request.domain,)))",
        "return facts.sharers * 0 * _is_among(facts.domain, (request.domain,))",
        LIMITS,
    ),
    Mutant(
        "memory of those who are there counts",
        f"{ENGINE}/limits.py",
        "free = facts.memory - facts.memory_used",
        "free = facts.memory - 0 * facts.memory_used",
        LIMITS,
    ),
    Mutant(
        "no one joins a tenant whose limits do not hold",
        f"{ENGINE}/limits.py",
        "return facts.loose",
        "return 0 * facts.loose",
        LIMITS,
    ),
    Mutant(
        "one step of multiprocessors too many is an escape",
        f"{NVIDIA}/proof.py",
        "if seen.sm_seen > seen.sm_allowed:",
        "if seen.sm_seen > seen.sm_allowed + SM_STEP:",
        PROOF,
    ),
    Mutant(
        "a share is rounded down to the hardware's step",
        f"{NVIDIA}/proof.py",
        "return min(sm_total, max(SM_STEP, wanted - wanted % SM_STEP))",
        "return min(sm_total, max(SM_STEP, wanted - wanted % SM_STEP + SM_STEP))",
        PROOF,
    ),
    Mutant(
        "memory above the cap is an escape",
        f"{NVIDIA}/proof.py",
        "    if seen.memory_mib > seen.cap_mib:",
        "    if seen.memory_mib > 2 * seen.cap_mib:",
        PROOF,
    ),
    Mutant(
        "the least important neighbour has to go",
        f"{GUARD}/machine.py",
        "guilty = min(\n            local,",
        "guilty = max(\n            local,",
        PAUSES,
    ),
)


def survives(mutant: Mutant) -> bool:
    """Whether all of a mutant's tests pass.

    Raises:
        SystemExit: its line is not there, or stands there twice.
    """
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    if text.count(mutant.line) != 1:
        raise SystemExit(f"{mutant.file}: {text.count(mutant.line)} times {mutant.line!r}")
    with TemporaryDirectory() as folder:
        for source in SOURCES:
            shutil.copytree(ROOT / source, Path(folder) / source)
        (Path(folder) / mutant.file).write_text(
            text.replace(mutant.line, mutant.instead), encoding="utf-8"
        )
        path = os.pathsep.join(str(Path(folder) / source) for source in SOURCES)
        done = subprocess.run(
            (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *mutant.tests),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            timeout=MOST_S,
            check=False,
        )
    if done.returncode not in (0, 1):
        raise SystemExit(done.stdout.decode() + done.stderr.decode())
    return done.returncode == 0


def main() -> int:
    """Try every mutant.

    Returns:
        0, or 1 when one survives.
    """
    alive = []
    for mutant in MUTANTS:
        lives = survives(mutant)
        print(f"{'SURVIVES' if lives else 'dies':8}  {mutant.file}: {mutant.rule}", flush=True)
        alive += [mutant] if lives else []
    print(f"{len(MUTANTS) - len(alive)} of {len(MUTANTS)} mutants die")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
