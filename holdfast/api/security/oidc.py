"""An OpenID Connect provider: Authorization Code with PKCE; id tokens are verified here."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from holdfast.api.limits import Limits
from holdfast.api.security.bootstrap_tokens import ROLES
from holdfast.api.security.guard import is_loopback
from holdfast.errors import HoldfastError
from holdfast.settings import Settings
from holdfast.settings.extras import require
from holdfast.store.credentials import Role
from holdfast.telemetry.redaction import redact

ALGORITHMS = [
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
]
"""Signatures with a private key; never "none", never a shared secret."""
LEEWAY = 60
"""Seconds by which clocks may differ."""
ANSWERS_WITHIN = 10.0
MAX_BYTES = 1024 * 1024
METADATA_SECONDS = 3600.0
"""Seconds for which the result of discovery is cached."""
NAMES = ("preferred_username", "email", "name", "sub")


class ProviderError(HoldfastError):
    """The provider cannot be reached or does not answer as OpenID Connect says."""


class LoginRefused(HoldfastError):
    """The provider's answer identifies nobody, or a person without a role."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A login in progress; the browser keeps it in a cookie until it returns."""

    state: str
    nonce: str
    verifier: str

    @classmethod
    def new(cls) -> Attempt:
        return cls(*(secrets.token_urlsafe(32) for _ in range(3)))

    @classmethod
    def read(cls, cookie: str) -> Attempt | None:
        parts = cookie.split(".")
        return cls(*parts) if len(parts) == 3 and all(parts) else None

    def __str__(self) -> str:
        return f"{self.state}.{self.nonce}.{self.verifier}"

    @property
    def query(self) -> dict[str, str]:
        """The query parameters by which the provider's answer is recognized."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return {
            "state": self.state,
            "nonce": self.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }


@dataclass(frozen=True, slots=True)
class Person:
    """A person who logged in. The name may change between logins, the subject does not."""

    subject: str
    name: str
    role: Role

    @property
    def owner(self) -> str:
        return f"person_{hashlib.sha256(self.subject.encode()).hexdigest()[:32]}"


class Provider:
    """The provider that the settings name."""

    def __init__(self, settings: Settings, limits: Limits) -> None:
        require("oidc", "`oidc_issuer`")
        self._issuer = settings.oidc_issuer.rstrip("/")
        self._client = (settings.oidc_client_id, settings.oidc_client_secret)
        self._scopes = settings.oidc_scopes
        self._key_seconds = limits.oidc_key_seconds
        self._groups_claim = settings.oidc_groups_claim
        self._roles = roles_of(settings.oidc_roles)
        self._metadata: tuple[float, dict[str, Any]] = (0.0, {})
        self._keys: tuple[float, dict[str, Any]] = (0.0, {})

    async def address(self, attempt: Attempt, redirect_uri: str) -> str:
        """Return the address to send the browser to."""
        metadata = await self._discover()
        query = {
            "response_type": "code",
            "client_id": self._client[0],
            "redirect_uri": redirect_uri,
            "scope": self._scopes,
            **attempt.query,
        }
        endpoint = metadata["authorization_endpoint"]
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def person(self, attempt: Attempt, code: str, redirect_uri: str) -> Person:
        """Exchange the code and return the person of its id token."""
        metadata = await self._discover()
        form = {"code": code, "redirect_uri": redirect_uri, "code_verifier": attempt.verifier}
        form["grant_type"] = "authorization_code"
        answer = await self._ask(
            metadata["token_endpoint"], *self._client_authentication(metadata, form)
        )
        claims = await self._verify(str(answer.get("id_token") or ""), attempt.nonce)
        if self._groups_claim not in claims and "userinfo_endpoint" in metadata:
            claims |= await self._user_info(
                metadata, str(answer.get("access_token")), claims["sub"]
            )
        return self._person(claims)

    def _client_authentication(
        self, metadata: Mapping[str, Any], form: dict[str, str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return form and headers that authenticate this client, in a way the provider supports."""
        id_, secret = self._client
        known = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if not secret:
            return form | {"client_id": id_}, {}
        if "client_secret_basic" in known:
            pair = f"{quote(id_, safe='')}:{quote(secret, safe='')}"
            return form, {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
        return form | {"client_id": id_, "client_secret": secret}, {}

    async def _verify(self, id_token: str, nonce: str) -> dict[str, Any]:
        """Return the claims of an id token after all checks of OpenID Connect."""
        claims = await self._signed_claims(id_token)
        now = time.time()
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        problems = {
            "another issuer": claims.get("iss") != (await self._discover())["issuer"],
            "another audience": self._client[0] not in audiences,
            "another party": claims.get("azp", self._client[0]) != self._client[0],
            "an expiry that has passed": not _is_number(claims.get("exp"))
            or claims["exp"] + LEEWAY < now,
            "a time that is to come": not _is_number(claims.get("iat"))
            or claims["iat"] - LEEWAY > now,
            "another nonce": not _is_same(str(claims.get("nonce") or ""), nonce),
            "no subject": not isinstance(claims.get("sub"), str) or not claims["sub"],
        }
        for problem, is_there in problems.items():
            if is_there:
                raise LoginRefused(f"the id token has {problem}")
        return claims

    async def _signed_claims(self, id_token: str) -> dict[str, Any]:
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        for is_fresh in (False, True):
            keys = await self._key_set(is_fresh)
            try:
                key_set = KeySet.import_key_set(keys)  # type: ignore[arg-type]
                return dict(jwt.decode(id_token, key_set, algorithms=ALGORITHMS).claims)
            except (JoseError, ValueError):
                # The provider may have changed its keys: look once more.
                continue
        raise LoginRefused("the id token is not signed by the provider")

    async def _user_info(
        self, metadata: Mapping[str, Any], access_token: str, subject: str
    ) -> dict[str, Any]:
        """Return further claims, such as groups, if they are of the same person."""
        found = await self._ask(
            metadata["userinfo_endpoint"], None, {"authorization": f"Bearer {access_token}"}
        )
        return found if found.get("sub") == subject else {}

    def _person(self, claims: Mapping[str, Any]) -> Person:
        roles = self._roles_in(claims)
        name = next(str(claims[key]) for key in NAMES if claims.get(key))
        shown = "".join(sign if sign.isprintable() else " " for sign in name)[:100]
        if not roles:
            raise LoginRefused(
                f"{shown} is in no group that has a role here; `oidc_roles` names those that have"
            )
        return Person(f"{self._issuer} {claims['sub']}", shown, max(roles, key=ROLES.index))

    def _roles_in(self, claims: Mapping[str, Any]) -> list[Role]:
        """Return the roles of all groups in the claims."""
        given = claims.get(self._groups_claim)
        groups = given if isinstance(given, list) else [given]
        names = [group for group in groups if isinstance(group, str)]
        return [self._roles[name] for name in names if name in self._roles]

    async def _discover(self) -> dict[str, Any]:
        read_at, metadata = self._metadata
        if not metadata or time.monotonic() - read_at > METADATA_SECONDS:
            metadata = await self._ask(f"{self._issuer}/.well-known/openid-configuration")
            missing = {"issuer", "authorization_endpoint", "token_endpoint", "jwks_uri"} - set(
                metadata
            )
            if missing or str(metadata["issuer"]).rstrip("/") != self._issuer:
                raise ProviderError(
                    f"{self._issuer} is not the OpenID Connect issuer that `oidc_issuer` names"
                )
            self._metadata = (time.monotonic(), metadata)
        return metadata

    async def _key_set(self, is_fresh: bool) -> dict[str, Any]:
        read_at, keys = self._keys
        if not keys or (is_fresh and time.monotonic() - read_at > self._key_seconds):
            keys = await self._ask((await self._discover())["jwks_uri"])
            self._keys = (time.monotonic(), keys)
        return keys

    async def _ask(
        self,
        address: str,
        form: dict[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        return await asyncio.to_thread(_fetch, address, form, dict(headers or {}))


def roles_of(text: str) -> dict[str, Role]:
    """Read `group = role, group = role`."""
    found: dict[str, Role] = {}
    for part in filter(str.strip, text.split(",")):
        group, _, role = (piece.strip() for piece in part.rpartition("="))
        known = next((one for one in ROLES if one == role), None)
        if not group or known is None:
            raise HoldfastError(
                f"oidc_roles: {part.strip()!r} is not `group = role` with role read, send or admin"
            )
        found[group] = known
    return found


def _is_same(one: str, other: str) -> bool:
    """Compare in constant time. As texts, `compare_digest` takes ASCII only."""
    return hmac.compare_digest(
        one.encode(errors="surrogatepass"), other.encode(errors="surrogatepass")
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: secrets go only to the address that discovery named."""


def _fetch(address: str, form: dict[str, str] | None, headers: dict[str, str]) -> dict[str, Any]:
    """Ask the provider and read its JSON. Blocks."""
    parts = urlsplit(address)
    if parts.scheme != "https" and not (
        parts.scheme == "http" and is_loopback(parts.hostname or "")
    ):
        raise ProviderError(
            f"the provider's address {address} is neither https nor on this machine"
        )
    data = None if form is None else urlencode(form).encode()
    headers = {"accept": "application/json", **headers}
    request = urllib.request.Request(address, data, headers)  # noqa: S310
    try:
        with urllib.request.build_opener(_NoRedirects).open(
            request, timeout=ANSWERS_WITHIN
        ) as answer:
            found = json.loads(answer.read(MAX_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            raise ProviderError(f"the provider answered {error.code} at {parts.path}") from None
    except (OSError, ValueError) as error:
        raise ProviderError(f"the provider cannot be asked: {redact(str(error))}") from None
    if not isinstance(found, dict):
        raise ProviderError(f"the provider answered no JSON object at {parts.path}")
    return found
