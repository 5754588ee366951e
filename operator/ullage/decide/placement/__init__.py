# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where pods go: who fits where, who comes first, who has to make way."""
