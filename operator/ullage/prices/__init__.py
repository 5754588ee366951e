# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Prices of capacity pools, from files, ConfigMaps, HTTP and the APIs of clouds."""
