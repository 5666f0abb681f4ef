"""Durable ingress: a message that was answered with 200 survives a kill -9 right after."""

from __future__ import annotations

import json
import signal
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.testing.databases import Databases
from holdfast.testing.fixtures import available
from tests.cli.shell import Shell, eventually

CLIENTS = 4
KILLED_AFTER = 10


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_message_that_got_its_200_survives_a_kill_right_after(
    engine: str, databases: Databases, tmp_path: Path
) -> None:
    acknowledged: set[str] = set()
    with available(engine, databases.fresh(engine)) as url:
        shell = Shell(tmp_path, url)
        with (
            shell.running("serve", "--port", "0") as server,
            ThreadPoolExecutor(CLIENTS) as clients,
        ):
            token = shell.out("token", "--role", "send").strip()

            def post_until_the_server_is_gone(client: int) -> None:
                for number in range(1000):
                    id_ = f"{client}-{number}"
                    fields = {"message": "hello", "sender": id_, "messageId": id_}
                    body = json.dumps(fields).encode()
                    headers = {"authorization": f"Bearer {token}"}
                    request = urllib.request.Request(f"{server.address}/api/message", body, headers)
                    try:
                        with urllib.request.urlopen(request, timeout=30) as answer:
                            assert answer.status == 200
                    except OSError:
                        return
                    acknowledged.add(id_)
                    if len(acknowledged) == KILLED_AFTER:
                        server.signal(signal.SIGKILL)

            list(clients.map(post_until_the_server_is_gone, range(CLIENTS)))
        assert len(acknowledged) >= KILLED_AFTER
        with shell.running("work"):

            def all_are_answered() -> bool:
                text = shell.out("history", "--queue", "inbox", "--limit", "1000", "--json")
                done = (row for row in json.loads(text) if row["outcome"] == "completed")
                return acknowledged <= {row["message_id"] for row in done}

            eventually(all_are_answered)
