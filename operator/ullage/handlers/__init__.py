# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kopf: on a leader lives of objects with something outside of them, on each replica admission."""
