# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""CustomResourceDefinitions and the reference of kinds, made from models and records."""
