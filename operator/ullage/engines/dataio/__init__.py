# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Data input: unfair use of a volume, limits against it, and the settings of readers. Pure."""
