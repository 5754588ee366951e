# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Mutants: copies of the code in which one rule is broken, and the tests that must notice."""
