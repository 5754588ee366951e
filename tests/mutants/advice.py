# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of warnings at apply: what they rest on, what they cost, and that they refuse nothing."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

ADVICE: Final = "operator/ullage/scheduling/status/advice.py"
SERVED: Final = "operator/ullage/handlers/admission.py"
SAID: Final = ("tests/unit/scheduling/test_advice_says_what_decisions_would.py",)
REVIEWED: Final = ("tests/unit/handlers/test_admission_warns_and_never_refuses.py",)

MUTANTS: Final = (
    Mutant(
        "an accelerator of a pool is there",
        ADVICE,
        "for model in at_once:",
        "for model in devices:",
        SAID,
    ),
    Mutant(
        "the largest device counts",
        ADVICE,
        "largest = max(offer.memory_mib for offer in allowed)",
        "largest = min(offer.memory_mib for offer in allowed)",
        SAID,
    ),
    Mutant(
        "memory that is not known is no reason",
        ADVICE,
        "is_known = all(offer.memory_mib for offer in allowed)",
        "is_known = True",
        SAID,
    ),
    Mutant(
        "a context has its part of a device",
        ADVICE,
        "memory_mib=max(0, memory_mib - context)",
        "memory_mib=memory_mib",
        SAID,
    ),
    Mutant(
        "nodes that may come may take a gang",
        ADVICE,
        "if not allowed or any(offer.grows for offer in allowed):",
        "if not allowed:",
        SAID,
    ),
    Mutant(
        "an elastic gang needs its fewest members",
        ADVICE,
        "elasticity.min_replicas if elasticity is not None",
        "elasticity.max_replicas if elasticity is None",
        SAID,
    ),
    Mutant(
        "a namespace has its part of advice",
        SERVED,
        "spent + units > MOST_OF_NAMESPACE or",
        "spent > 2**30 or",
        REVIEWED,
    ),
    Mutant(
        "all namespaces have theirs",
        SERVED,
        " or self.units.total() + units > MOST_UNITS",
        "",
        REVIEWED,
    ),
    Mutant(
        "large bodies are decoded at a rate",
        SERVED,
        "return size <= LARGE_BYTES or self.large_bytes <= MOST_LARGE_BYTES",
        "return True",
        REVIEWED,
    ),
    Mutant(
        "no answer refuses",
        SERVED,
        """        warnings = answer["response"].get("warnings") or []
""",
        """        if not answer["response"]["allowed"]:
            raise web.HTTPInternalServerError
        warnings = answer["response"].get("warnings") or []
""",
        REVIEWED,
    ),
    Mutant(
        "kopf copies no deep object",
        SERVED,
        '"spec": _Read(section(written, "spec"))',
        '"spec": section(written, "spec")',
        REVIEWED,
    ),
    Mutant(
        "warnings are printable",
        SERVED,
        "sign if sign.isprintable() else",
        "sign if sign else",
        REVIEWED,
    ),
)
