# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What traces of frameworks say of a step, in words that no framework owns.

Pure: text in, records out. It must never guess what a trace does not say.
"""
