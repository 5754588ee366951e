# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who may share a device with whom: risk before admission, trials, and judging again."""
