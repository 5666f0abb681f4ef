"""deploy/nginx.conf in Debian's nginx before `holdfast up`: login, a message, a stream over TLS."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import ROOT, Running, Shell, eventually

NAME = "holdfast.example.com"
AROUND = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/site.conf;
}}
"""


@pytest.fixture(scope="session")
def nginx() -> str:
    """Its path; where it cannot be had tests are skipped, and in CI they fail."""
    asked = subprocess.run([ROOT / "tools" / "nginx"], capture_output=True, text=True, check=False)
    if asked.returncode == 0:
        return asked.stdout.strip().splitlines()[-1]
    if os.environ.get("CI") == "true":
        pytest.fail(f"no nginx: {asked.stderr.strip()}", pytrace=False)
    pytest.skip(f"no nginx: {asked.stderr.strip()}")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def running(shell: Shell) -> Iterator[Running]:
    proxied = {"HOLDFAST_API_URL": f"https://{NAME}", "HOLDFAST_API_PROXIES": "127.0.0.1"}
    shell.environment |= proxied
    with shell.running("up", "--port", "0") as running:
        yield running


@pytest.fixture
def port(nginx: str, running: Running, tmp_path: Path) -> Iterator[int]:
    """Where nginx listens with TLS."""
    plain, secure = _free_ports(2)
    folder = tmp_path / "nginx"
    folder.mkdir()
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subject = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    made = [
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run(["openssl", "req", "-x509", *made, *subject], check=True, capture_output=True)
    site = (ROOT / "deploy" / "nginx.conf").read_text()
    for what, instead in (
        (r"listen \[::\].*", ""),
        (r"listen 80;", f"listen 127.0.0.1:{plain};"),
        (r"listen 443 ssl;", f"listen 127.0.0.1:{secure} ssl;"),
        (r"server 127\.0\.0\.1:3777;", f"server {running.address.removeprefix('http://')};"),
        (r"ssl_certificate .*", f"ssl_certificate {certificate};"),
        (r"ssl_certificate_key .*", f"ssl_certificate_key {key};"),
    ):
        site, times = re.subn(what, instead, site)
        assert times, what
    (folder / "site.conf").write_text(site)
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder))
    command = [nginx, "-p", str(folder), "-c", f"{folder}/nginx.conf", "-e", f"{folder}/error.log"]
    subprocess.run([*command, "-t", "-q"], check=True)
    with subprocess.Popen(command) as process:
        eventually(lambda: _answers(secure))
        yield secure
        process.terminate()
    assert " [emerg] " not in (folder / "error.log").read_text()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


class Browser(http.client.HTTPSConnection):
    """Asks nginx by its public name, whatever address it has; keeps the cookie."""

    def __init__(self, port: int, certificate: Path) -> None:
        self._trust = ssl.create_default_context(cafile=certificate)
        self.cookie = ""
        super().__init__(NAME, 443, timeout=20, context=self._trust)
        self._at = port

    def connect(self) -> None:
        plain = socket.create_connection(("127.0.0.1", self._at), self.timeout)
        self.sock = self._trust.wrap_socket(plain, server_hostname=NAME)

    def ask(
        self, method: str, path: str, body: object = None, **more: str
    ) -> http.client.HTTPResponse:
        headers = {"Origin": f"https://{NAME}", "X-Forwarded-For": "6.6.6.6", **more}
        if self.cookie:
            headers["Cookie"] = self.cookie
        self.request(method, path, None if body is None else json.dumps(body), headers)
        return self.getresponse()


@pytest.fixture
def browser(shell: Shell, port: int, tmp_path: Path) -> Iterator[Browser]:
    """One that is logged in by a link."""
    browser = Browser(port, tmp_path / "nginx" / "certificate.pem")
    link = shell.out("login").strip()
    assert link.startswith(f"https://{NAME}/login?code=")
    answer = browser.ask("GET", link.removeprefix(f"https://{NAME}"))
    answer.read()
    assert answer.status == 303
    cookie = str(answer.headers["set-cookie"])
    assert cookie.startswith("__Host-")
    assert "Secure" in cookie
    browser.cookie = cookie.partition(";")[0]
    yield browser
    browser.close()


def test_issue_13_19_a_login_link_and_a_message_go_through_nginx(
    browser: Browser, shell: Shell
) -> None:
    answer = browser.ask("POST", "/api/message", {"message": "hello", "messageId": "mine-1"})
    assert (answer.status, json.loads(answer.read())["messageId"]) == (200, "mine-1")
    assert "max-age" in answer.headers["strict-transport-security"]
    refused = browser.ask("POST", "/api/message", {"message": "x" * 1_100_000})
    assert (refused.status, "error" in json.loads(refused.read())) == (413, True)


def test_a_stream_goes_through_nginx_unbuffered(
    browser: Browser, port: int, tmp_path: Path
) -> None:
    watcher = Browser(port, tmp_path / "nginx" / "certificate.pem")
    watcher.cookie = browser.cookie
    stream = watcher.ask("GET", "/api/events/stream")
    assert stream.status == 200
    assert _until(stream, "event: connected") < 5
    browser.ask("POST", "/api/message", {"message": "hello"}).read()
    assert _until(stream, "event: response_ready") < 10
    stream.close()
    watcher.close()


def _until(stream: http.client.HTTPResponse, line: str) -> float:
    """Return the seconds until a line of an endless stream arrives; a buffer would hold it back."""
    since = time.monotonic()
    while stream.readline().decode().strip() != line:
        assert time.monotonic() - since < 20
    return time.monotonic() - since


def test_an_address_that_the_client_invents_does_not_pass(browser: Browser, shell: Shell) -> None:
    """Each wrong token counts against the address of the client, which it cannot choose."""
    stranger = browser
    stranger.cookie = ""
    codes = set()
    for number in range(300):
        answer = stranger.ask(
            "GET",
            "/api/agents",
            Authorization="Bearer wrong",
            **{"X-Forwarded-For": f"6.6.6.{number}"},
        )
        answer.read()
        codes.add(answer.status)
        if answer.status == 429:
            break
    assert codes == {401, 429}
