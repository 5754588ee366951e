# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Times for people, such as ``60h`` or ``1h30m``, as fields of the schema."""

from __future__ import annotations

from pydantic import Field
from pydantic.fields import FieldInfo

from ullage.api.rules import Rule, validations


def duration(rule: Rule) -> FieldInfo:
    """A Go duration above 0; the rule carries its message."""
    pattern = r"^([0-9]+(\.[0-9]+)?(h|m|s))+$"
    field_info: FieldInfo = Field(
        max_length=32, pattern=pattern, json_schema_extra=validations(rule)
    )
    return field_info
