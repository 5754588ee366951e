# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Bills of materials in CycloneDX: what is installed in an image, by package URL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from release.images import Package

NAMESPACES: Final = {"pypi": None, "deb": "debian"}


def bill(name: str, version: str, found: Sequence[Package]) -> str:
    """The bill of an image as JSON.

    Args:
        name: Of the image.
        version: Of the release.
        found: What is installed in it.
    """
    bom = Bom()
    bom.metadata.component = Component(name=name, version=version, type=ComponentType.CONTAINER)
    for one in found:
        url = PackageURL(one.kind, NAMESPACES[one.kind], one.name, one.version)
        bom.components.add(
            Component(
                name=one.name,
                version=one.version,
                type=ComponentType.LIBRARY,
                purl=url,
                bom_ref=url.to_string(),
            )
        )
    bom.register_dependency(bom.metadata.component, list(bom.components))
    return JsonV1Dot6(bom).output_as_string(indent=2)
