# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Answers that are refusals, in the shape a real API server gives them."""

from __future__ import annotations

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Refusal(Exception):
    """The request is answered with a Status object; status 0 cuts the connection instead."""

    def __init__(
        self, status: int, message: str, reason: str = "", *, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason or REASONS.get(status, "")
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, object]:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.status,
        }


def not_found(plural: str, name: str) -> Refusal:
    return Refusal(404, f'{plural} "{name}" not found')


def exists(plural: str, name: str) -> Refusal:
    return Refusal(409, f'{plural} "{name}" already exists', "AlreadyExists")


def changed(plural: str, name: str) -> Refusal:
    return Refusal(
        409,
        f'Operation cannot be fulfilled on {plural} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again",
    )


def invalid(kind: str, name: str, cause: str) -> Refusal:
    """``kind`` with its group where it has one, as in ``TrainingJob.ullage.dev``."""
    return Refusal(422, f'{kind} "{name}" is invalid: {cause}')


def expired(version: int, oldest: int) -> Refusal:
    return Refusal(410, f"too old resource version: {version} ({oldest})")
