# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the parts of the agent speak of: devices, slices, the guard, samples. No I/O."""
