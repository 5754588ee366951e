# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Quota of tenants by accelerator type: what they hold, borrow from each other, and take back.

The terms are those of Kueue (nominal quota, borrowing and lending limit, cohort, reclaim). Amounts
are percent of devices. Nothing in this package knows a device, a pod or a clock.
"""
