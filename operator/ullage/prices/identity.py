# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The identity of the operator's pod at a cloud: short-lived tokens, fetched when needed.

Only the platform's identity of a pod is used: AWS keys of the environment, EKS Pod Identity or a
web identity (IRSA), Google's workload identity. No Secret is read and nothing is stored on disk. No
text of an error or a log line may include a key or a token.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from ullage.prices.source import PriceUnreadable, decoded, moment
from ullage.prices.times import TOKEN_EARLY_S

GOOGLE_TOKEN: Final = (
    "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
)
_ALGORITHM: Final = "AWS4-HMAC-SHA256"

Get = Callable[[str, Mapping[str, str]], Awaitable[bytes]]
"""GET of a URL with headers; raises without an answer."""


class NoIdentity(Exception):
    """The pod has no identity that the cloud accepts; the text has the required set-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsKeys:
    """Signing keys of requests; never shown."""

    key_id: str
    secret: str
    session: str = ""
    until_s: float = float("inf")

    def __repr__(self) -> str:
        """Without the keys."""
        return "AwsKeys(...)"


def signed(
    url: str, keys: AwsKeys, service: tuple[str, str], now_s: float, extra: Mapping[str, str] = {}
) -> dict[str, str]:
    """Headers of a GET under AWS Signature Version 4.

    Args:
        url: URL with its query.
        keys: Signing keys.
        service: Service and region.
        now_s: Seconds since the epoch.
        extra: Further headers to sign.
    """
    name, region = service
    stamp = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")
    parts = urlsplit(url)
    headers = {key.lower(): value for key, value in extra.items()}
    headers |= {"host": parts.netloc, "x-amz-date": stamp}
    headers |= {"x-amz-security-token": keys.session} if keys.session else {}
    names = ";".join(sorted(headers))
    pairs = sorted(  # by their encoded names, then values
        (quote(key, safe="-_.~"), quote(value, safe="-_.~"))
        for key, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    query = "&".join(f"{key}={value}" for key, value in pairs)
    lines = "".join(f"{key}:{headers[key]}\n" for key in sorted(headers))
    empty = hashlib.sha256(b"").hexdigest()
    request = "\n".join(("GET", parts.path or "/", query, lines, names, empty))
    scope = f"{stamp[:8]}/{region}/{name}/aws4_request"
    text = "\n".join((_ALGORITHM, stamp, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{keys.secret}".encode()
    for part in (stamp[:8], region, name, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={keys.key_id}/{scope}, SignedHeaders={names}, "
        f"Signature={signature}"
    )
    return {key: value for key, value in headers.items() if key != "host"}


class Identities:
    """Tokens and keys, cached until shortly before they expire."""

    def __init__(
        self, get: Get, environment: Mapping[str, str], *, google_token: str = GOOGLE_TOKEN
    ) -> None:
        """``environment`` is the process's; the platform's webhooks set the variables."""
        self._get = get
        self._environment = environment
        self._google_token = google_token
        self._aws: AwsKeys | None = None
        self._google: tuple[str, float] | None = None

    async def google(self, now_s: float) -> str:
        """A bearer token of the pod's Google service account.

        Raises:
            NoIdentity: there is none.
        """
        if self._google is not None and now_s < self._google[1] - TOKEN_EARLY_S:
            return self._google[0]
        body = await self._get(self._google_token, {"Metadata-Flavor": "Google"})
        answer = _object(body, "Google's metadata service")
        token, seconds = answer.get("access_token"), answer.get("expires_in")
        if not isinstance(token, str) or not isinstance(seconds, int):
            raise NoIdentity(
                "Google's metadata service gives the pod no token: set up workload "
                "identity for the operator's service account"
            )
        self._google = token, now_s + seconds
        return token

    async def aws(self, region: str, now_s: float) -> AwsKeys:
        """Keys of the pod's AWS role.

        Raises:
            NoIdentity: there is none.
        """
        if self._aws is not None and now_s < self._aws.until_s - TOKEN_EARLY_S:
            return self._aws
        env = self._environment
        if env.get("AWS_ACCESS_KEY_ID") and env.get("AWS_SECRET_ACCESS_KEY"):
            self._aws = AwsKeys(
                key_id=env["AWS_ACCESS_KEY_ID"],
                secret=env["AWS_SECRET_ACCESS_KEY"],
                session=env.get("AWS_SESSION_TOKEN", ""),
            )
        elif env.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
            self._aws = await self._pod_identity()
        elif env.get("AWS_ROLE_ARN") and env.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
            self._aws = await self._web_identity(region)
        else:
            raise NoIdentity(
                "the operator's pod has no AWS identity: give its service account a role "
                "that may ec2:DescribeSpotPriceHistory (EKS Pod Identity or IRSA)"
            )
        return self._aws

    async def _pod_identity(self) -> AwsKeys:
        headers = {"Authorization": self._token("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")}
        url = self._environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
        return _keys(_object(await self._get(url, headers), "EKS Pod Identity"), "Token")

    async def _web_identity(self, region: str) -> AwsKeys:
        query = urlencode(
            {
                "Action": "AssumeRoleWithWebIdentity",
                "Version": "2011-06-15",
                "RoleArn": self._environment["AWS_ROLE_ARN"],
                "RoleSessionName": "ullage-operator",
                "WebIdentityToken": self._token("AWS_WEB_IDENTITY_TOKEN_FILE"),
            }
        )
        where = self._environment.get("AWS_ENDPOINT_URL_STS", f"https://sts.{region}.amazonaws.com")
        body = await self._get(f"{where}/?{query}", {"Accept": "application/json"})
        answer = _object(body, "AWS STS")
        for name in (
            "AssumeRoleWithWebIdentityResponse",
            "AssumeRoleWithWebIdentityResult",
            "Credentials",
        ):
            inner = answer.get(name)
            answer = inner if isinstance(inner, Mapping) else {}
        return _keys(answer, "SessionToken")

    def _token(self, variable: str) -> str:
        """A token that the platform renews in a file."""
        path = self._environment.get(variable, "")
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise NoIdentity(
                f"the file that {variable} names cannot be read: {error.strerror}"
            ) from (error)


def _object(body: bytes, who: str) -> Mapping[str, object]:
    try:
        answer = decoded(body, who)
    except PriceUnreadable:
        answer = None  # an error text could quote the answer
    if not isinstance(answer, Mapping):
        raise NoIdentity(f"{who} answers no JSON object")
    return answer


def _keys(answer: Mapping[str, object], session: str) -> AwsKeys:
    """Keys from an answer, whose times are texts or seconds."""
    key_id, secret, token = (answer.get(n) for n in ("AccessKeyId", "SecretAccessKey", session))
    if not (isinstance(key_id, str) and isinstance(secret, str) and isinstance(token, str)):
        raise NoIdentity("AWS answers no keys: see the trust policy of the pod's role")
    until = answer.get("Expiration")
    ends_s = float(until) if isinstance(until, int | float) else moment(until, "Expiration")
    return AwsKeys(key_id=key_id, secret=secret, session=token, until_s=ends_s)
