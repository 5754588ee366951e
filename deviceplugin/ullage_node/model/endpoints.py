# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a pod's metrics endpoint and images.

Annotations and ports are user input: invalid ones count as missing and never hide the pod itself.
Only the pod's own address is ever used, whatever an annotation holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ullage.api.readers import JsonObject

ANNOTATION_PORT: Final = "prometheus.io/port"
ANNOTATION_PATH: Final = "prometheus.io/path"
PORT_NAMES: Final = ("metrics", "http")
DEFAULT_PATH: Final = "/metrics"
LONGEST_PATH: Final = 200
LONGEST_DIGEST: Final = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsEndpoint:
    """Address of a pod's metrics page; no port = none named."""

    ip: str = ""
    port: int = 0
    path: str = DEFAULT_PATH

    @property
    def url(self) -> str:
        """URL of the page; "" = address or port unknown."""
        if not (self.ip and self.port):
            return ""
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"http://{host}:{self.port}{self.path}"


def read_endpoint(pod: JsonObject) -> MetricsEndpoint:
    """The pod's endpoint: the annotated port, else the port called ``metrics`` or ``http``."""
    annotations = _object(_object(pod, "metadata"), "annotations")
    path = annotations.get(ANNOTATION_PATH)
    ip = _object(pod, "status").get("podIP")
    return MetricsEndpoint(
        ip=ip if isinstance(ip, str) else "",
        port=_annotated_port(annotations.get(ANNOTATION_PORT)) or _named_port(pod),
        path=path if _is_path(path) and isinstance(path, str) else DEFAULT_PATH,
    )


def read_images(pod: JsonObject) -> tuple[tuple[str, str], ...]:
    """Container and digest of the image that it runs, for those that the status names."""
    images: dict[str, str] = {}
    for status in _objects(_object(pod, "status"), "containerStatuses"):
        name, image = status.get("name"), status.get("imageID")
        if isinstance(name, str) and isinstance(image, str) and image:
            images[name] = image.rpartition("@")[2][:LONGEST_DIGEST]
    return tuple(sorted(images.items()))


def _annotated_port(value: object) -> int:
    return int(value) if isinstance(value, str) and _is_port(value) else 0


def _is_port(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= 5 and 0 < int(value) <= 65_535


def _named_port(pod: JsonObject) -> int:
    ports = {str(port.get("name", "")): port.get("containerPort") for port in _ports(pod)}
    wanted = (ports[name] for name in PORT_NAMES if name in ports)
    port = next(wanted, 0)
    return port if isinstance(port, int) and 0 < port <= 65_535 else 0


def _ports(pod: JsonObject) -> Iterator[JsonObject]:
    for container in _objects(_object(pod, "spec"), "containers"):
        yield from _objects(container, "ports")


def _is_path(value: object) -> bool:
    return (
        isinstance(value, str)
        and value.startswith("/")
        and len(value) <= LONGEST_PATH
        and value.isascii()
        and value.isprintable()
        and not set(value) & set(" #")
    )


def _object(raw: JsonObject, field: str) -> JsonObject:
    value = raw.get(field)
    return value if isinstance(value, dict) else {}


def _objects(raw: JsonObject, field: str) -> Iterator[JsonObject]:
    value = raw.get(field)
    yield from (
        (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else ()
    )
