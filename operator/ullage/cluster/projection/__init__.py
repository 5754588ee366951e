# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From raw objects to records; what cannot be read is refused with its place."""
