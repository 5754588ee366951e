# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Device time that was held and not used: the ledger, the rules that explain it, their ranking."""
