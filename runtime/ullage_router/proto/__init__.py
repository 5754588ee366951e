# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Messages of the Open Inference Protocol over gRPC, generated from the ``.proto`` files here."""
