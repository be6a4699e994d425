"""Public bug reports as tests: sends, statuses, unknown outcomes, refusals (``shared/cases/channels``)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.engine.cases import load, shifted
from tests.engine.world import ACCOUNT, CUSTOMER, World, whatsapp
from zaia_cli.core.outbound import SendResult
from zaia_cli.engine import reconcile
from zaia_cli.engine.worker import Worker

NOW = int(time.time())


def status(kind: str, message_id: str, at: int, **extra: Any) -> dict[str, Any]:
    """One status webhook."""
    row = {"id": message_id, "status": kind, "timestamp": str(at), "recipient_id": CUSTOMER, **extra}
    return whatsapp(statuses=[row])


async def part(world: World) -> dict[str, Any]:
    rows = await world.rows("SELECT * FROM parts ORDER BY position")
    return rows[0]


async def send_once(world: World) -> None:
    """Answer one message without waiting for what stays open."""
    await world.say("oi")
    await world.work()


async def test_023_a_send_that_timed_out_after_it_was_accepted_is_settled_by_its_status(world: World) -> None:
    world.graph.plan(nth=1, timeout_after_accept=True, message_id="wamid.OUT180")
    await send_once(world)
    assert (await part(world))["state"] == "unknown"
    opaque = await world.one("SELECT opaque_id FROM deliveries")
    for kind in ("sent", "delivered"):
        assert await world.post(status(kind, "wamid.OUT180", NOW, biz_opaque_callback_data=opaque)) == 200
    await world.travel(3600)
    await world.tick()
    row = await part(world)
    assert (row["state"], row["provider_message_id"]) == ("delivered", "wamid.OUT180")
    assert len(world.graph.sends) == 1
    seen = await world.rows("SELECT to_state FROM events WHERE entity = 'part' ORDER BY id")
    assert [event["to_state"] for event in seen] == ["unknown", "sent", "delivered"]


async def test_024_a_send_that_never_arrived_becomes_a_task_for_a_person(world: World) -> None:
    world.graph.plan(nth=1, timeout_without_accept=True)
    await send_once(world)
    await world.travel(900)
    await world.say("alguém?", customer="5511900099999")
    await world.travel(1)
    await world.rows("UPDATE channel_accounts SET last_event_at = now() RETURNING account")
    await world.tick()
    row = await part(world)
    assert (row["state"], row["reconcile_at"] is not None) == ("unknown", True)
    assert await world.one("SELECT count(*) FROM alerts WHERE kind = 'unknown_reply'") == 1
    tasks = await reconcile.open_tasks(world.db, 0)
    assert [task["part"] for task in tasks] == [f"{row['reply_id']}:1"]
    assert len([s for s in world.graph.sends if s["to"] == CUSTOMER]) == 1
    await reconcile.resend(world.db, tasks[0]["part"], by="ana")
    await world.work()
    assert (await part(world))["state"] == "accepted"
    opaque = [row["opaque_id"] for row in await world.rows("SELECT opaque_id FROM deliveries ORDER BY n")]
    assert len(set(opaque[:2])) == 2


async def test_024_without_a_healthy_webhook_path_the_task_waits(world: World) -> None:
    world.graph.plan(nth=1, timeout_without_accept=True)
    await send_once(world)
    await world.travel(900)
    await world.tick()
    assert (await part(world))["reconcile_at"] is None


async def test_026_a_process_that_died_after_the_send_is_settled_by_the_status(world: World) -> None:
    await world.say("oi")
    worker = Worker(world.parts(), has_scheduler=False)
    await _answer_only(world, worker)
    claimed = await world.db.run(
        "outbox.claim", worker="dead", limit=1, window_s=86400, unknown_after_s=120, channel=None
    )
    assert len(claimed) == 1
    await world.travel(300)
    await world.tick()
    assert (await part(world))["state"] == "unknown"
    await world.post(status("delivered", "wamid.OUT210", NOW, biz_opaque_callback_data=claimed[0]["opaque_id"]))
    await world.work()
    row = await part(world)
    assert (row["state"], row["provider_message_id"]) == ("delivered", "wamid.OUT210")
    assert world.graph.sends == []


async def _answer_only(world: World, worker: Worker) -> None:
    """Commit the turn and leave its reply in the outbox."""
    await world.rows(
        "INSERT INTO gates (organization_id, name, reason) VALUES ('loja-a', %(name)s, 'test') RETURNING 1",
        name=f"channel:whatsapp:{ACCOUNT}",
    )
    await worker.run(until_idle=True)
    await world.rows("DELETE FROM gates RETURNING 1")


async def test_027_statuses_that_come_before_the_sends_answer_are_applied_later(world: World) -> None:
    world.graph.plan(nth=1, message_id="wamid.OUT220")
    for kind in ("sent", "delivered"):
        assert await world.post(status(kind, "wamid.OUT220", NOW)) == 200
    assert await world.one("SELECT count(*) FROM statuses WHERE applied_at IS NULL") == 2
    await send_once(world)
    await world.tick()
    assert (await part(world))["state"] == "delivered"
    assert await world.one("SELECT count(*) FROM statuses WHERE applied_at IS NULL") == 0


async def test_029_late_and_lower_statuses_change_nothing(world: World) -> None:
    world.graph.plan(nth=1, message_id="wamid.OUT230")
    await send_once(world)
    for kind, at in (("delivered", 2), ("sent", 1), ("read", 9), ("delivered", 2)):
        await world.post(status(kind, "wamid.OUT230", NOW + at))
    row = await part(world)
    assert row["state"] == "read"
    assert [int(row[name].timestamp()) - NOW for name in ("sent_at", "delivered_at", "read_at")] == [1, 2, 9]
    assert await world.one("SELECT count(*) FROM statuses") == 3


async def test_030_read_without_delivered_counts_as_delivered(world: World) -> None:
    world.graph.plan(nth=1, message_id="wamid.OUT240")
    await send_once(world)
    await world.post(status("read", "wamid.OUT240", NOW + 3))
    row = await part(world)
    assert (row["state"], int(row["delivered_at"].timestamp())) == ("read", NOW + 3)


@pytest.mark.parametrize("number", ["008", "065"])
async def test_a_failed_status_ends_the_reply_and_brings_a_person(world: World, number: str) -> None:
    case = load(number)
    for step in case["input"]["steps"]:
        value = step["body"]["entry"][0]["changes"][0]["value"]
        world.graph.plan(message_id=value["statuses"][0]["id"])
        customer = f"55119000{value['statuses'][0]['id'][-3:]}00"
        await world.say("oi", customer=customer)
        await world.work()
        assert await world.post(shifted(step["body"], NOW - 1_790_000_000)) == 200
    rows = await world.rows(
        "SELECT p.state, p.error, h.owner FROM parts p JOIN hot h USING (organization_id, conversation_id)"
    )
    assert {(row["state"], row["owner"]) for row in rows} == {("failed", "human")}
    assert {row["error"]["code"] for row in rows} <= {131026, 131047}
    before = len(world.graph.sends)
    await world.work()
    assert len(world.graph.sends) == before


async def test_034_a_second_reply_waits_for_an_unknown_one_a_bounded_time(world: World) -> None:
    world.graph.plan(nth=1, timeout_without_accept=True)
    await world.say("um")
    await world.work()
    await world.say("dois")
    await world.work_until("SELECT count(*) FROM parts WHERE state = 'pending'", 1)
    assert len(world.graph.sends) == 1
    await world.travel(130)
    await world.work()
    assert world.sent() == ["Recebi: dois"]
    assert [row["state"] for row in await world.rows("SELECT state FROM parts ORDER BY position")] == [
        "unknown",
        "accepted",
    ]


async def test_041_an_echo_of_our_own_send_takes_nobody_over(world: World) -> None:
    case = load("041")
    echo = shifted(case["input"]["steps"][1]["body"], NOW - 1_790_000_000)
    echo["entry"][0]["id"] = "178" + ACCOUNT
    inner = echo["entry"][0]["messaging"][0]
    inner["sender"]["id"] = "178" + ACCOUNT
    inner["message"]["text"] = "Recebi: oi"
    hello = {
        "object": "instagram",
        "entry": [
            {
                "id": "178" + ACCOUNT,
                "time": NOW * 1000,
                "messaging": [
                    {
                        "sender": {"id": "900000000000001"},
                        "recipient": {"id": "178" + ACCOUNT},
                        "timestamp": NOW * 1000,
                        "message": {"mid": "mid.IN1", "text": "oi"},
                    }
                ],
            }
        ],
    }
    world.graph.plan(nth=1, message_id="mid.OUT340", answer_delay_s=0.5)
    assert await world.post(hello, "instagram") == 200
    worker = Worker(world.parts())
    async with world.running(worker):
        await world.until("SELECT state FROM parts", "sending")
        assert await world.post(echo, "instagram") == 200
        assert await world.one("SELECT count(*) FROM held_echoes") == 1
        await world.until("SELECT state FROM parts", "accepted")
    assert await world.post(echo, "instagram") == 200
    await world.tick()
    assert await world.one("SELECT owner FROM hot") == "agent"
    assert await world.one("SELECT count(*) FROM messages WHERE role = 'customer'") == 1
    assert await world.one("SELECT count(*) FROM held_echoes") == 0


async def test_061_a_long_reply_goes_in_parts_in_order(world: World) -> None:
    case = load("061")
    spec = case["input"]["reply_spec"]
    world.script(f"[[rules]]\ntext = {_toml(spec['repeat'] * spec['times'])}\n")
    await send_once(world)
    texts = world.sent()
    assert len(texts) >= case["expected"]["parts_min"]
    assert all(len(text.encode("utf-16-le")) // 2 <= 4096 for text in texts)
    assert "".join("".join(texts).split()) == "".join((spec["repeat"] * spec["times"]).split())
    assert [send["reply_to"] is not None for send in world.graph.sends] == [True] + [False] * (len(texts) - 1)


async def test_061_a_failed_part_cancels_the_rest(world: World) -> None:
    world.script(f"[[rules]]\ntext = {_toml('Uma frase qualquer. ' * 700)}\n")
    world.graph.plan(nth=2, http=400, json={"error": {"message": "x", "code": 131026}})
    await send_once(world)
    states = [row["state"] for row in await world.rows("SELECT state FROM parts ORDER BY n")]
    assert states[:2] == ["accepted", "failed"]
    assert set(states[2:]) == {"cancelled"}
    assert await world.one("SELECT owner FROM hot") == "human"


def _toml(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


async def test_062_a_refused_payload_is_not_repeated(world: World) -> None:
    answer = load("062")["input"]["provider"][0]
    world.graph.plan(nth=1, http=answer["http"], json=answer["json"])
    await send_once(world)
    assert (await part(world))["state"] == "failed"
    assert len(world.graph.sends) == 1
    assert await world.one("SELECT count(*) FROM alerts WHERE kind = 'reply_failed'") == 1


async def test_064_a_closed_window_fails_the_reply_without_a_send(world: World) -> None:
    await world.say("oi")
    worker = Worker(world.parts(), has_scheduler=False)
    await _answer_only(world, worker)
    await world.travel(86_400)
    await world.work()
    row = await part(world)
    assert (row["state"], row["error"]["code"]) == ("failed", "window_closed")
    assert world.graph.sends == []
    assert await world.one("SELECT owner FROM hot") == "human"


async def test_067_a_pair_limit_delays_only_its_own_conversation_and_spends_no_attempt(world: World) -> None:
    answer = load("067")["input"]["provider"][1]
    world.graph.plan(to=CUSTOMER, http=answer["http"], json=answer["json"])
    await world.say("oi")
    await world.say("oi", customer="5511900020000")
    started = time.monotonic()
    await world.work()
    assert time.monotonic() - started > 0.9
    assert len(world.sent()) == 1
    assert len(world.sent("5511900020000")) == 1
    assert {row["attempts"] for row in await world.rows("SELECT attempts FROM parts")} == {1}


async def test_070_an_expired_token_closes_one_companys_account_and_rows_wait(world: World) -> None:
    await world.organization("loja-b", account="100000000000002")
    answer = load("070")["input"]["provider_by_tenant"]["loja-a"][0]
    world.graph.plan(nth=1, http=answer["http"], json=answer["json"])
    await world.say("um")
    await world.work()
    await world.say("dois", customer="5511900020000")
    await world.say("três", customer="5511900030000", account="100000000000002")
    await world.work()
    rows = await world.rows("SELECT organization_id, state FROM parts ORDER BY organization_id, position")
    assert [(row["organization_id"], row["state"]) for row in rows] == [
        ("loja-a", "pending"),
        ("loja-a", "pending"),
        ("loja-b", "accepted"),
    ]
    assert len([send for send in world.graph.sends if send["account"] == ACCOUNT]) == 1
    assert await world.one("SELECT count(*) FROM alerts WHERE kind = 'channel_blocked'") == 1
    await world.db.run("gates.open", organization_id="loja-a", name=f"channel:whatsapp:{ACCOUNT}")
    await world.work()
    assert (len(world.sent()), len(world.sent("5511900020000"))) == (1, 1)


async def test_codes_that_may_hide_an_accepted_send_wait_for_evidence(world: World) -> None:
    world.graph.plan(nth=1, http=500, json={"error": {"message": "x", "code": 131000}})
    await world.say("oi")
    async with world.running(Worker(world.parts())):
        await world.until("SELECT state FROM parts", "unknown")
        assert len(world.graph.sends) == 1
        await world.travel(61)
        await world.until("SELECT state FROM parts", "accepted")
    assert len(world.graph.sends) == 2


async def test_a_refused_connection_is_tried_again_and_never_unknown(world: World) -> None:
    await world.rows(
        "UPDATE channel_accounts SET base_url = 'http://127.0.0.1:9/v1' WHERE channel = 'whatsapp' RETURNING 1"
    )
    await world.say("oi")
    async with world.running(Worker(world.parts())):
        await world.until("SELECT attempts FROM parts", 1)
        await world.rows(
            "UPDATE channel_accounts SET base_url = %(u)s WHERE channel = 'whatsapp' RETURNING 1",
            u=f"{world.graph_url}/v23.0",
        )
        await world.until("SELECT state FROM parts", "accepted")
    assert await world.one("SELECT count(*) FROM events WHERE to_state = 'unknown'") == 0


async def test_a_frozen_process_does_not_send_when_it_wakes(world: World) -> None:
    await world.say("oi")
    worker = Worker(world.parts(), has_scheduler=False)
    await _answer_only(world, worker)
    asked: list[bool] = []

    class Frozen:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.channels["whatsapp"], name)

        async def send(self, account: Any, part: Any, *, may_send: Any) -> SendResult:
            asked.append(may_send())
            return SendResult("not_sent", error="too late")

    world.configure(delivery={"unknown_after_s": 0.000001})
    parts = world.parts()
    object.__setattr__(parts, "channels", {**world.channels, "whatsapp": Frozen()})
    async with world.running(Worker(parts, has_scheduler=False)):
        await world.until("SELECT count(*) > 0 FROM deliveries WHERE outcome IS NOT NULL", True)
    assert asked[0] is False
    assert world.graph.sends == []
