# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of admission: what may share a device, and how sure that is."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

ENGINE: Final = "operator/ullage/engines/admission"

ADMISSION: Final = ("tests/unit/engines/admission", "tests/property/test_prior_invariants.py")
LIMITS: Final = (
    "tests/unit/engines/admission",
    "tests/property/test_one_admission_chain.py",
    "tests/property/test_admission_never_overcommits.py",
)

DECIDES: Final = ("tests/unit/engines/admission/test_admission_decides.py",)
MERGE: Final = "operator/ullage/scheduling/learning/merge.py"
KEPT: Final = ("tests/unit/scheduling/test_what_nodes_observe_is_learned.py",)

MUTANTS: Final = (
    Mutant(
        "a tenant's bandwidth falls as it slows down",
        f"{ENGINE}/prior.py",
        "memory += min(KNEE, print_.dram) * pace / KNEE",
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
        "a class that faulted a device joins others on trial only",
        f"{ENGINE}/probation.py",
        "return account.faults > 0",
        "return account.faults > 9",
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
        "a share that the node cannot enforce is refused",
        f"{ENGINE}/limits.py",
        "return facts.least_percent - request.min_percent",
        "return facts.least_percent - request.max_percent",
        LIMITS,
    ),
    Mutant(
        "a container has one MIG device",
        f"{ENGINE}/limits.py",
        "return facts.alone if request.count > 1 else 0 * facts.alone",
        "return facts.alone if request.count > 2 else 0 * facts.alone",
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
        "a looser margin must be surer than the first",
        f"{ENGINE}/calibration.py",
        "max(confidence, LOOSER_CONFIDENCE)",
        "confidence",
        ("tests/unit/engines/admission/test_thresholds_are_certified.py",),
    ),
    Mutant(
        "a pair is scored by what other pairs chose",
        f"{ENGINE}/judging.py",
        "weigh(data, out.where(part != number), group",
        "weigh(data, out.where(part >= 0), group",
        ("tests/unit/engines/admission/test_what_certifies_chose_nothing.py",),
    ),
    Mutant(
        "a namespace of ever new classes displaces only its own rows",
        MERGE,
        'origins = tuple(sorted({origin_of(name) for name in classes} or {""}))',
        'origins = ("",)',
        KEPT,
    ),
    Mutant(
        "a mixture of shares loses half of its rows in a half-life",
        MERGE,
        "math.log2(ranks[mixture]) - row.at_s / MIXTURE_HALF_LIFE_S",
        "math.log2(ranks[mixture]) - row.at_s / (2 * MIXTURE_HALF_LIFE_S)",
        KEPT,
    ),
    Mutant(
        "pauses say how fast a class is alone",
        MERGE,
        "seconds = pauses if len(pauses) >= CELL_ROWS else",
        "seconds = pauses if len(pauses) < 0 else",
        KEPT,
    ),
    Mutant(
        "tenants together reach what is asked",
        f"{ENGINE}/decision.py",
        "if option.value > present + TOLERANCE and option.combined >= floor - TOLERANCE",
        "if option.value > present + TOLERANCE",
        DECIDES,
    ),
    Mutant(
        "a newcomer adds to what is there",
        f"{ENGINE}/decision.py",
        "if option.value > present + TOLERANCE and option.combined >= floor - TOLERANCE",
        "if option.combined >= floor - TOLERANCE",
        DECIDES,
    ),
    Mutant(
        "weights count in the worth of a device",
        f"{ENGINE}/decision.py",
        "value = math.fsum(tenant.weight * speed for",
        "value = math.fsum(speed for",
        DECIDES,
    ),
    Mutant(
        "weights count in the worth before a newcomer",
        f"{ENGINE}/decision.py",
        "tenant.weight * math.exp(-max(mean, 0.0))",
        "math.exp(-max(mean, 0.0))",
        DECIDES,
    ),
    Mutant(
        "the risk of an eviction costs",
        f"{ENGINE}/decision.py",
        "gain=gain, eviction_risk=risk)",
        "gain=gain, eviction_risk=0 * risk)",
        DECIDES,
    ),
    Mutant(
        "an empty device has no least sum of speeds",
        f"{ENGINE}/decision.py",
        "basis.settings.min_combined_percent / 100 if query.residents else 0.0",
        "basis.settings.min_combined_percent / 100",
        DECIDES,
    ),
    Mutant(
        "of safe shares alone one is chosen",
        f"{ENGINE}/decision.py",
        "safe = [option for option in options if option.margin.passes]",
        "safe = list(options)",
        DECIDES,
    ),
)
