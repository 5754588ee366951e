# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Choice of a type of accelerator, and of a number of them, for a goal of time or cost.

Pure: records in, records out. It must never choose an offer without evidence of its memory fit.
"""
