# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kopf: ends of objects with something outside of them (leader), admission (each replica)."""
