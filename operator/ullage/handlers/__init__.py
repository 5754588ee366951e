# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kopf: ends of objects with external resources (leader), admission (each replica)."""
