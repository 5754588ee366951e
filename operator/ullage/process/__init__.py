# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Parts shared by the processes of operator and node agent; each loads only what it needs."""
