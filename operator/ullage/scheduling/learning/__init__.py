# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""From the observations of nodes to profiles, speeds and recommendations."""
