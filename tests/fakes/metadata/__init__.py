# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metadata endpoints of three providers on loopback, as their documents describe them."""

from fakes.metadata.azure import FakeAzure
from fakes.metadata.ec2 import FakeEC2
from fakes.metadata.gce import FakeGCE
from fakes.metadata.server import MetadataServer

__all__ = ["FakeAzure", "FakeEC2", "FakeGCE", "MetadataServer"]
