# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Steps per second on every type of device: declared, measured, or estimated."""
