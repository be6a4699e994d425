"""``zaia ingest``: the same intake from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Zaia
from tests.engine.world import message, whatsapp


@pytest.fixture
def ingest(zaia: Zaia, workspace: Path, dsn: str) -> Any:
    """Take in a file with ``--json``; gives the exit code, the document and stderr."""
    common = ("--workspace", workspace, "--database-url", dsn)
    applied = zaia("org", "apply", workspace / "fixtures" / "organizations" / "loja-exemplo.toml", *common)
    assert applied.exit_code == 0, applied.output

    def run(content: Any, *options: str, channel: str = "whatsapp") -> tuple[int, dict[str, Any], str]:
        file = workspace / "input"
        file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        done = zaia("ingest", file, "--channel", channel, "--json", *options, *common)
        return done.exit_code, json.loads(done.stdout), done.stderr

    return run


@pytest.fixture
def stats(zaia: Zaia, workspace: Path, dsn: str) -> Any:
    return lambda: json.loads(zaia("queue", "stats", "--json", "--workspace", workspace, "--database-url", dsn).stdout)


def text(message_id: str, account: str = "100000000000001", **extra: Any) -> dict[str, Any]:
    return whatsapp([message("Oi", message_id, **extra)], account)


def test_the_document_has_the_promised_shape(ingest: Any) -> None:
    status = {"id": "wamid.OUT", "status": "delivered", "timestamp": "1790000000", "recipient_id": "5511900010000"}
    payload = text("wamid.1")
    payload["entry"] += whatsapp(statuses=[status])["entry"] + text("wamid.2", "999")["entry"]
    payload["entry"][0]["changes"].append({"field": "account_update", "value": {}})
    code, document, _ = ingest(payload)
    assert code == 0
    assert {name: document[name] for name in ("schema_version", "received", "accepted", "duplicates")} == {
        "schema_version": 1,
        "received": 4,
        "accepted": 1,
        "duplicates": 0,
    }
    assert (document["statuses"], document["ignored"], len(document["rejected"])) == (1, 1, 1)
    assert document["rejected"][0]["index"] == 3
    assert document["rejected"][0]["reason"] == "no organization has this account"
    assert set(document) == {
        "schema_version", "received", "accepted", "duplicates", "statuses", "ignored", "rejected", "items",
    }  # fmt: skip
    assert set(document["rejected"][0]) >= {"index", "reason"}
    [item] = document["items"]
    assert set(item) >= {"reference", "conversation", "class", "message_id"}
    assert item["reference"].startswith("ZA-")
    assert (item["class"], item["message_id"]) == ("standard", "wamid.1")
    assert len(item["conversation"]) == 36


def test_the_same_file_again_changes_nothing(ingest: Any, stats: Any) -> None:
    assert ingest([text("wamid.1"), text("wamid.2")])[1]["accepted"] == 2
    code, document, _ = ingest([text("wamid.1"), text("wamid.2")])
    assert (code, document["accepted"], document["duplicates"], document["items"]) == (0, 0, 2, [])
    assert (stats()["pending"], stats()["duplicate_inputs"]) == (1, 2)


def test_a_line_that_is_not_json_is_rejected_and_its_neighbours_go_on(ingest: Any, stats: Any) -> None:
    odd = text("wamid.2")
    odd["entry"][0]["changes"][0]["value"]["messages"][0]["text"]["body"] = "a line separator \u2028 inside"
    lines = [json.dumps(text("wamid.1")), "{not json", "", json.dumps(odd, ensure_ascii=False)]
    code, document, told = ingest("\n".join(lines))
    assert (code, document["received"], document["accepted"]) == (0, 3, 2)
    assert document["rejected"][0]["index"] == 1
    assert document["rejected"][0]["reason"].startswith("line 2: not JSON")
    assert "line 2" in told
    assert stats()["rejected_inputs"] == 1


@pytest.mark.parametrize("content", ["{not json", "[\n{\n", '{"object": NaN}'])
def test_a_file_with_nothing_but_rejected_items_exits_3(ingest: Any, stats: Any, content: str) -> None:
    code, document, _ = ingest(content)
    assert (code, document["received"], len(document["rejected"])) == (3, 1, 1)
    assert stats()["rejected_inputs"] == 1


def test_old_messages_are_said_to_go_to_a_person_and_fresh_ones_do_not(ingest: Any, stats: Any) -> None:
    old = text("wamid.1", at=1_700_000_000)
    _, document, told = ingest(old)
    assert "--fresh" in told
    assert document["items"][0]["reference"].startswith("ZA-")
    assert stats()["human_open"] == 1
    _, document, told = ingest(text("wamid.2", at=1_700_000_000, customer="5511900020000"), "--fresh")
    assert "--fresh" not in told
    assert document["items"][0]["reference"] is not None
    assert stats()["human_open"] == 1


def test_http_requests_go_to_the_only_account(ingest: Any) -> None:
    request = {"from": "ana@example.com", "text": "Palete quebrado", "fields": {"tipo": "avaria"}}
    code, document, _ = ingest(request, channel="http")
    assert (code, document["accepted"], document["items"][0]["class"]) == (0, 1, "urgent")
    code, document, _ = ingest(request, "--account", "nobody", channel="http")
    assert (code, document["error"]["kind"]) == (4, "not_found")


def test_an_account_with_another_channel_and_an_empty_file_are_usage_errors(ingest: Any) -> None:
    assert ingest(text("wamid.1"), "--account", "x")[0] == 2
    assert ingest(" \n")[0] == 2


def test_a_missing_file_is_not_found(zaia: Zaia, workspace: Path, dsn: str) -> None:
    done = zaia("ingest", "nothing.json", "--channel", "whatsapp", "--workspace", workspace, "--database-url", dsn)
    assert done.exit_code == 4


@pytest.mark.parametrize(
    ("name", "channel"),
    [
        ("whatsapp_text", "whatsapp"),
        ("whatsapp_batch", "whatsapp"),
        ("whatsapp_types", "whatsapp"),
        ("whatsapp_changes", "whatsapp"),
        ("whatsapp_username", "whatsapp"),
        ("instagram_messages", "instagram"),
        ("http_form", "http"),
        ("http_request", "http"),
    ],
)
def test_the_packaged_payloads_are_taken_in(ingest: Any, workspace: Path, name: str, channel: str) -> None:
    content = (workspace / "fixtures" / "webhooks" / f"{name}.json").read_text("utf-8")
    code, document, _ = ingest(content, "--fresh", channel=channel)
    assert code == 0
    assert document["accepted"] > 0
    counted = sum(document[key] for key in ("accepted", "duplicates", "statuses", "ignored"))
    assert document["received"] == counted + len(document["rejected"])


def test_packaged_statuses_of_unknown_sends_are_counted_and_open_nothing(
    ingest: Any, stats: Any, workspace: Path
) -> None:
    code, document, _ = ingest((workspace / "fixtures" / "webhooks" / "whatsapp_statuses.json").read_text("utf-8"))
    assert (code, document["accepted"], document["statuses"]) == (0, 0, document["received"])
    assert document["statuses"] > 0
    assert (stats()["pending"], stats()["rejected_inputs"]) == (0, 0)


def test_stdin_and_a_terminal_table(zaia: Zaia, workspace: Path, dsn: str, ingest: Any) -> None:
    done = zaia(
        "ingest", "-", "--channel", "whatsapp", "--workspace", workspace, "--database-url", dsn,
        input=json.dumps(text("wamid.1")),
    )  # fmt: skip
    assert done.exit_code == 0
    assert done.stdout.splitlines()[:2] == [
        "received\taccepted\tduplicates\tstatuses\tignored\trejected",
        "1\t1\t0\t0\t0\t0",
    ]
