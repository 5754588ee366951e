# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The admission webhook, for API servers that serve no MutatingAdmissionPolicy."""
