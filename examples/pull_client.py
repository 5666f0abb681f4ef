"""A channel client that pulls. It waits for `message:done` on the event stream, fetches what is
pending with its files, and acks it. It needs nothing but Python:

    TOKEN=$(holdfast token --role send) python examples/pull_client.py "hello"
"""

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

URL = os.environ.get("URL", "http://127.0.0.1:3777")
HEADERS = {"authorization": f"Bearer {os.environ['TOKEN']}"}
CHANNEL = "pull"


def call(path: str, body: object = None, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{URL}{path}", data, HEADERS, method=method)  # noqa: S310
    return urllib.request.urlopen(request, timeout=60)  # noqa: S310


def events() -> Iterator[str]:
    for line in call(f"/api/events/stream?dialect=tinyagi&channel={CHANNEL}"):
        if line.startswith(b"event: "):
            yield line[7:].decode().strip()


for event in events():
    if event == "connected":
        call("/api/message", {"message": sys.argv[1], "channel": CHANNEL, "sender": "puller"})
    elif event == "message:done":
        for response in json.load(call(f"/api/responses/pending?channel={CHANNEL}")):
            print(response["message"])
            for id in response.get("fileIds", ()):
                print(f"{id}: {len(call(f'/api/files/{id}').read())} bytes")
            call(f"/api/responses/{response['id']}/ack", method="POST")
        break
