# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""WorkloadProfiles: as records, and on the wire in both directions."""
