# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the processes of operator and node agent have in common; each loads what it needs."""
