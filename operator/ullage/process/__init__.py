# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Parts that the processes of operator and node agent share; each loads what it needs."""
