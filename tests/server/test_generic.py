"""The generic intake over real HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import Client, Serve
from tests.server.odd import ODD_VALUES
from zaia_cli.channels.sending import open_channels
from zaia_cli.core.config import Config
from zaia_cli.engine.parts import EngineParts
from zaia_cli.engine.worker import Worker
from zaia_cli.models.prices import load_prices
from zaia_cli.models.router import ModelRouter

ROOT = Path(__file__).parents[2]
REQUEST = {"id": "pedido-1", "from": "ana@example.com", "subject": "Entrega", "text": "Onde está meu pedido?"}


async def ask(client: Client, body: Any, account: str = "site-loja-a", token: str = "token-a") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    # As bytes: aiohttp takes json=None for no body at all.
    data = json.dumps(body).encode()
    async with client.session.post(f"{client.url}/intake/{account}", data=data, headers=headers) as answer:
        return answer.status, await answer.json()


async def work(client: Client) -> None:
    config = Config.model_validate({"turn": {"coalesce_s": 0, "coalesce_max_s": 0}, "queue": {"poll_s": 0.1}})
    async with open_channels(config.delivery) as channels:
        model = ModelRouter({}, ROOT / "fixtures" / "scripts")
        parts = EngineParts(client.db, config, channels, model, load_prices({}), ROOT / "prompts", "worker")
        await Worker(parts).run(until_idle=True)


async def test_a_request_gets_its_reference(client: Client) -> None:
    status, answer = await ask(client, REQUEST)
    assert status == 200
    assert answer["reference"].startswith("ZA-")
    assert (answer["state"], answer["class"], answer["duplicate"], answer["result"]) == (
        "pending",
        "standard",
        False,
        None,
    )


@pytest.mark.parametrize("body", [REQUEST, {key: value for key, value in REQUEST.items() if key != "id"}])
async def test_a_repeat_gets_the_same_reference_and_later_the_result(client: Client, body: dict[str, Any]) -> None:
    _, first = await ask(client, body)
    _, again = await ask(client, body)
    assert (again["reference"], again["state"], again["duplicate"]) == (first["reference"], "pending", True)
    await work(client)
    status, done = await ask(client, body)
    assert status == 200
    assert (done["reference"], done["state"], done["duplicate"]) == (first["reference"], "completed", True)
    assert REQUEST["text"] in done["result"]["text"]
    assert await client.count("work_items") == 1


async def test_a_repeat_gets_its_own_result_and_nobody_elses(client: Client) -> None:
    bodies = [
        ("site-loja-a", REQUEST),
        ("site-loja-a", {**REQUEST, "id": "pedido-2", "from": "bia@example.com", "text": "Quero trocar."}),
        ("site-loja-b", {**REQUEST, "text": "Mesmo número, outra loja."}),
    ]
    firsts = [(await ask(client, body, account))[1]["reference"] for account, body in bodies]
    await work(client)
    later = (await ask(client, {**REQUEST, "id": "pedido-3", "text": "Outra coisa."}))[1]["reference"]
    assert len({*firsts, later}) == 4
    for (account, body), reference in zip(bodies, firsts, strict=True):
        _, done = await ask(client, body, account)
        assert (done["reference"], done["state"], done["duplicate"]) == (reference, "completed", True)
        assert body["text"] in done["result"]["text"]


async def test_wrong_token_and_unknown_account_are_refused(client: Client) -> None:
    assert (await ask(client, REQUEST, token="wrong"))[0] == 401
    assert (await ask(client, REQUEST, token="é"))[0] == 401
    assert (await ask(client, REQUEST, token=""))[0] == 401
    assert (await ask(client, REQUEST, account="nobody"))[0] == 404
    assert await client.count("messages") == 0


async def test_an_account_without_a_token_is_refused_unless_insecure(client: Client, serve: Serve) -> None:
    assert (await ask(client, REQUEST, account="open-loja-a"))[0] == 401
    async with serve(is_insecure=True) as insecure:
        assert (await ask(insecure, REQUEST, account="open-loja-a", token=""))[0] == 200
        assert (await ask(insecure, REQUEST, token=""))[0] == 401


async def test_what_is_no_request_is_answered_with_the_reason_and_kept(client: Client) -> None:
    status, answer = await ask(client, {"from": "ana@example.com", "txt": "oi"})
    assert status == 422
    assert "txt" in answer["error"]["message"]
    assert await client.count("rejected_inputs") == 1
    for body in (None, [], [REQUEST], "oi", 3):
        status, answer = await ask(client, body)
        assert (status, answer["error"]["message"]) == (422, "one JSON object is expected")
    assert await client.count("rejected_inputs") == 6
    assert await client.count("messages") == 0


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b'{"text": NaN}'])
async def test_what_is_not_json_is_refused_and_kept_nowhere(client: Client, body: bytes) -> None:
    headers = {"Authorization": "Bearer token-a"}
    async with client.session.post(f"{client.url}/intake/site-loja-a", data=body, headers=headers) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["kind"] == "bad_body"
    assert await client.count("rejected_inputs") == 0


@pytest.mark.parametrize("key", ["id", "from", "name", "subject", "text", "fields", "at"])
async def test_an_odd_value_is_taken_in_with_a_reference_or_refused_with_a_reason(client: Client, key: str) -> None:
    refused = 0
    for n, value in enumerate(ODD_VALUES):
        body = {"id": f"pedido-{n}", "from": f"cliente-{n}@example.com", "text": "Oi", key: value}
        status, answer = await ask(client, body)
        assert status in (200, 422), (value, answer)
        assert answer["reference"].startswith("ZA-") if status == 200 else answer["error"]["message"]
        refused += status == 422
    assert await client.count("rejected_inputs") == refused
    assert await client.count("messages") == len(ODD_VALUES) - refused


@pytest.mark.parametrize("account", ["%00", "%C3%A9", "%ED%A0%80", "x" * 5000])
async def test_an_odd_account_is_an_account_that_nobody_has(client: Client, account: str) -> None:
    async with client.session.post(f"{client.url}/intake/{account}", data=b"{}") as answer:
        assert answer.status == 404


async def test_a_message_that_joins_a_request_gets_its_reference(client: Client) -> None:
    _, first = await ask(client, REQUEST)
    status, answer = await ask(client, {**REQUEST, "id": "pedido-2", "text": "É o pedido 12."})
    assert status == 200
    assert answer == first
    assert await client.count("work_items") == 1
    assert await client.count("messages") == 2


async def test_a_request_that_is_too_late_gets_a_reference_too(client: Client) -> None:
    status, answer = await ask(client, {**REQUEST, "at": "2020-01-01T00:00:00Z"})
    assert status == 200
    assert answer["reference"] is not None


async def test_a_request_of_a_conversation_that_a_person_holds_quotes_its_number(client: Client) -> None:
    _, first = await ask(client, REQUEST)
    async with client.db.transaction() as session:
        await session.execute("UPDATE hot SET owner = 'human', due_at = NULL")
    status, answer = await ask(client, {**REQUEST, "id": "pedido-2", "text": "E agora?"})
    assert status == 200
    assert (answer["reference"], answer["duplicate"]) == (first["reference"], False)
    assert await client.count("messages") == 2
