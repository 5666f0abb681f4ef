"""The OpenAPI document is true: answers are as it describes, and no request ends in a 500."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode, checks
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast import AgentHarness
from holdfast.agents.echo import echo
from holdfast.api.app import create_app
from holdfast.api.route import ROLE
from holdfast.api.routes.docs import document_of
from holdfast.api.routes.static_files import read_pages
from holdfast.api.security.caller import PREFIXES
from holdfast.settings import Settings
from tests.api.serving import ask_json, serving
from tests.cli.shell import Running, Shell

EXAMPLES = 15
# Promises of the document about answers. The contract fixes how mistakes of clients are answered.
CHECKS: Any = [
    checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]

APP = """
from holdfast import AgentHarness
from holdfast.agents.echo import echo

app = AgentHarness(echo, default="echo")
app.team("dev", agents=["echo"], leader="echo")
"""


def document() -> dict[str, Any]:
    harness = AgentHarness(
        echo,
        settings=Settings(home=Path("/nonexistent"), database="sqlite:///x.db", api_auth="none"),
    )
    return document_of(create_app(harness, "127.0.0.1"))


DOCUMENT = document()
OPERATIONS = [
    (method.upper(), path)
    for path, operations in DOCUMENT["paths"].items()
    for method in operations
    # A stream has no end, and a link for browsers is no answer in JSON.
    if path not in ("/api/events/stream", "/login")
]
# An operation without parameters and without a token has no invalid requests to generate.
CASES = [
    (method, path, mode)
    for method, path in OPERATIONS
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or ROLE in DOCUMENT["paths"][path][method.lower()]
]


def test_the_example_of_a_login_has_a_code_with_the_right_prefix() -> None:
    content = DOCUMENT["paths"]["/login"]["post"]["requestBody"]["content"]
    [form] = content.values()
    assert form["example"]["code"].startswith(PREFIXES["code"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, str]]:
    shell = Shell(tmp_path_factory.mktemp("openapi"))
    shell.write("my_app.py", APP)
    with shell.running("up", "--port", "0", "--app", "my_app:app") as running:
        yield running, shell.out("token").strip()
        assert "a request failed" not in running.log


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("method", "path", "mode"), CASES)
def test_the_document_is_true(
    server: tuple[Running, str], method: str, path: str, mode: GenerationMode
) -> None:
    running, token = server
    operation = schemathesis.openapi.from_dict(DOCUMENT)[path][method]
    headers = {"authorization": f"Bearer {token}"}

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def holds(case: Any) -> None:
        case.call_and_validate(base_url=running.address, headers=headers, checks=CHECKS, timeout=30)

    holds()


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
async def test_the_document_is_made_beside_the_event_loop(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def openapi(app: FastAPI) -> dict[str, Any]:
        threads.append(threading.current_thread())
        return {"paths": {}}

    monkeypatch.setattr(FastAPI, "openapi", openapi)
    async with serving(AgentHarness(echo, settings=Settings(database=database_url))) as port:
        assert (await ask_json(port, "/openapi.json"))[0] == 200
    assert threads
    assert threading.main_thread() not in threads


def test_every_operation_has_a_summary_a_description_and_an_example() -> None:
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], path
            assert operation["description"], path
            if "requestBody" in operation:
                [content] = operation["requestBody"]["content"].values()
                assert content["example"], (method, path)
            assert "422" not in operation["responses"], path


def test_the_contract_has_all_its_routes() -> None:
    assert {path for _, path in OPERATIONS} >= {
        "/api/message",
        "/api/queue/status",
        "/api/queue/agents",
        "/api/queue/processing",
        "/api/queue/processing/{id}/kill",
        "/api/responses",
        "/api/responses/pending",
        "/api/responses/{id}/ack",
        "/api/queue/dead",
        "/api/queue/dead/{id}/retry",
        "/api/queue/dead/{id}",
        "/api/agents",
        "/api/teams",
        "/api/agents/{id}/messages",
        "/api/chatroom/{team}",
        "/healthz",
        "/readyz",
        "/metrics",
        "/docs",
        "/openapi.json",
    }


def test_pages_name_no_foreign_host_and_hold_no_script_or_style_of_their_own() -> None:
    for name, page in read_pages().items():
        # An XML namespace is only a name, which no browser requests.
        text = page.content.decode().replace('"http://www.w3.org/2000/svg"', "")
        assert not re.search(r"(?:https?:)?//[\w-]+\.[a-z]", text), name
        if name.endswith(".html"):
            assert not re.search(r"<style|<script(?![^>]*\ssrc=)|\sstyle=|\son\w+=", text), name
