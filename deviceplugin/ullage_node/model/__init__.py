# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Values that the agent's parts share: devices, slices, the guard, samples. No I/O."""
