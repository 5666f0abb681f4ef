"""Ids in paths may be any text, also one that a database cannot store."""

from __future__ import annotations

import re

import pytest

from tests.contract.http.steps import Api

ODD = ("a%00b", "%00", "%F0%9F%92%A9", "%EF%BF%BF", "9" * 30)


@pytest.mark.each_engine
async def test_no_id_in_a_path_is_a_failure_of_the_server(api: Api) -> None:
    paths = (await api.get("/openapi.json"))["paths"]
    with_id = [(method.upper(), path) for path in paths for method in paths[path] if "{" in path]
    assert len(with_id) > 30
    for method, path in with_id:
        for id in ODD:
            status, answer = await api.ask(method, re.sub(r"{\w+}", id, path), {})
            assert status < 500, (method, path, id, answer)
