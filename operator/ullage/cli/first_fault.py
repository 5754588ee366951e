# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The first fault that a schema finds in a manifest, in one line."""

from __future__ import annotations

from pydantic import ValidationError


def first_fault(error: ValidationError, *above: str) -> str:
    """The first fault of a manifest with its place, as ``spec.tenants.1.weight: MESSAGE``.

    Args:
        error: What validation found.
        above: Names that lead to what was validated.
    """
    first = error.errors()[0]
    place = ".".join(str(part) for part in (*above, *first["loc"]))
    return f"{place}: {first['msg']}"
