# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The only way out: every write of the operator, ordered, limited, fenced and idempotent."""
