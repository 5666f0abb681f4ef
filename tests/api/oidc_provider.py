"""An OpenID Connect provider on loopback that can give wrong answers and checks PKCE."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

CLIENT, SECRET = "holdfast", "a long secret"


class LoopbackProvider:
    """Its claims, keys and answers can be changed by a test."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {
            "sub": "17",
            "preferred_username": "ada",
            "groups": ["staff"],
        }
        self.user_info: dict[str, Any] = {}
        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        self.published = self.key
        self.asked: dict[str, str] = {}
        """The query of the last authorization request."""
        self.address = ""

    def answer(self, path: str, headers: Any, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if path == "/.well-known/openid-configuration":
            names = ("authorization", "token", "userinfo")
            return 200, {"issuer": self.address, "jwks_uri": f"{self.address}/keys"} | {
                f"{name}_endpoint": f"{self.address}/{name}" for name in names
            }
        if path == "/keys":
            return 200, dict(KeySet([self.published]).as_dict(private=False))
        if path == "/userinfo":
            return 200, self.user_info
        if path == "/token":
            return self._token(headers, form)
        return 404, {}

    def _token(self, headers: Any, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        expected = base64.b64encode(b"holdfast:a%20long%20secret").decode()
        is_right = (
            form["code"] == "the code"
            and form["redirect_uri"] == self.asked["redirect_uri"]
            and challenge == self.asked["code_challenge"]
            and headers["authorization"] == f"Basic {expected}"
        )
        if not is_right:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.address,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": self.asked["nonce"],
        }
        token = jwt.encode({"alg": "RS256", "kid": "one"}, claims | self.claims, self.key)
        return 200, {"access_token": "x", "token_type": "Bearer", "id_token": token}

    def authorize(self, location: str) -> str:
        """Do what a browser and its person do; the address to come back to."""
        parts = urlsplit(location)
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{self.address}/authorization"
        self.asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        assert self.asked["code_challenge_method"] == "S256"
        assert self.asked["client_id"] == CLIENT
        return f"/login/oidc/callback?code=the%20code&state={self.asked['state']}"


@contextmanager
def loopback_provider() -> Iterator[LoopbackProvider]:
    provider = LoopbackProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            self.reply({name: values[0] for name, values in parse_qs(body).items()})

        def reply(self, form: dict[str, str]) -> None:
            status, answer = provider.answer(self.path, self.headers, form)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
