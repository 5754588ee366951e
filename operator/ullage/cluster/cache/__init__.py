# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Objects as observed, with the writes that are assumed until they are seen."""
