# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The status of an EfficiencyReport as JSON, both ways."""

from __future__ import annotations

from typing import Final

from ullage.api.codec import derived
from ullage.cluster.records.efficiency import EfficiencyReportStatus

REPORT_STATUS: Final = derived(EfficiencyReportStatus)
report_status_from_wire, report_status_to_wire = REPORT_STATUS.read, REPORT_STATUS.write
