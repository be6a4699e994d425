"""The scripted model and its script format."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from zaia_cli.core.chat import ChatMessage, ModelReply, ModelRequest, ToolCall
from zaia_cli.core.errors import ConfigError, ModelError
from zaia_cli.models.scripted import ScriptedModel

SHIPPED = Path(__file__).parents[2] / "fixtures" / "scripts"


def user(content: str) -> ChatMessage:
    return ChatMessage("user", content)


def used(name: str, call_id: str = "c", result: str = "ok") -> tuple[ChatMessage, ChatMessage]:
    call = ToolCall(call_id, name, {})
    return ChatMessage("assistant", "", (call,)), ChatMessage("tool", result, tool_call_id=call_id)


@pytest.fixture
def play(tmp_path: Path) -> Any:
    """Write a script and ask it; the same script keeps its memory over calls."""
    models: dict[str, ScriptedModel] = {}

    async def ask(script: str, *messages: ChatMessage, stable: str = "s", timeout_s: float = 5.0) -> ModelReply:
        if script not in models:
            (tmp_path / f"s{len(models)}.toml").write_text(script, encoding="utf-8")
            models[script] = ScriptedModel(tmp_path)
        name = f"scripted/s{list(models).index(script)}"
        return await models[script].complete(ModelRequest(name, stable, messages), timeout_s=timeout_s)

    return ask


async def shipped(name: str, *messages: ChatMessage) -> ModelReply:
    request = ModelRequest(f"scripted/{name}", "s", messages)
    return await ScriptedModel(SHIPPED).complete(request, timeout_s=5)


async def test_shipped_scripts_quote_the_whole_burst() -> None:
    history = (user("antes"), ChatMessage("assistant", "oi"), user("um"), user("dois"))
    assert (await shipped("echo", *history)).text == "Você escreveu: um | dois"
    assert "um | dois" in (await shipped("demo", *history)).text


@pytest.mark.parametrize(
    ("text", "department"),
    [
        ("quero falar com uma PESSOA", "Atendimento humano"),
        ("me passa um atendente por causa do boleto", "Financeiro"),
    ],
)
async def test_demo_transfers_when_a_person_is_asked_for(text: str, department: str) -> None:
    reply = await shipped("demo", user(text))
    (call,) = reply.tool_calls
    assert (call.name, reply.finish) == ("transfer_to_department", "tool_calls")
    assert call.arguments is not None
    assert call.arguments["department"] == department


async def test_demo_offers_another_department_once_and_then_says_so() -> None:
    first = (user("quero uma pessoa"), *used("transfer_to_department", "a", "não existe"))
    second = (*first, *used("transfer_to_department", "b", "não existe"))
    reply = await shipped("demo", *first)
    assert reply.tool_calls[0].arguments == {"department": "Financeiro", "reason": "O cliente pediu uma pessoa."}
    assert (await shipped("demo", *second)).tool_calls == ()


async def test_demo_loops_with_the_same_arguments() -> None:
    history: tuple[ChatMessage, ...] = (user("trava aí"),)
    asked = []
    for step in range(5):
        reply = await shipped("demo", *history)
        asked.append((reply.tool_calls[0].name, json.dumps(reply.tool_calls[0].arguments)))
        history += (
            ChatMessage("assistant", "", reply.tool_calls),
            ChatMessage("tool", "nada", (), reply.tool_calls[0].id),
        )
        assert len({call.id for message in history for call in message.tool_calls}) == step + 1
    assert len(set(asked)) == 1


async def test_first_rule_that_holds_answers(play: Any) -> None:
    script = """
        [[rules]]
        burst = 'pedido (?P<order>\\d+)'
        tool = "lookup"
        args = { id = "{order}", list = ["{last}"] }
        [[rules]]
        after_tool = "lookup"
        text = "{result}: {burst}, {count}/{history_count} {unknown} {step}"
        [[rules]]
        text = "?"
    """
    reply = await play(script, user("meu pedido 77"))
    assert reply.tool_calls[0].arguments == {"id": "77", "list": ["meu pedido 77"]}
    reply = await play(script, user("meu pedido 77"), *used("lookup", result="pago"), user("e aí?"))
    assert reply.text == "?"
    reply = await play(script, user("meu pedido 77"), *used("lookup", result="pago"))
    assert reply.text == "pago: meu pedido 77, 1/3 {unknown} 2"


async def test_nth_counts_failed_calls_of_one_conversation(play: Any) -> None:
    script = """
        [[rules]]
        nth = 1
        status = 503
        headers = { Retry-After = "3" }
        [[rules]]
        text = "ok"
    """
    with pytest.raises(ModelError) as caught:
        await play(script, user("a"))
    assert (caught.value.kind, caught.value.status, caught.value.retry_after_s) == ("transient", 503, 3.0)
    assert (await play(script, user("a"))).text == "ok"
    with pytest.raises(ModelError):
        await play(script, user("b"))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("status = 429\nbody = { error = { code = 'insufficient_quota', message = 'spent' } }", "payment"),
        ("status = 401", "unauthorized"),
        ("reset = true", "transient"),
        ("hang = true", "timeout"),
        ("text = 'late'\ndelay_s = 9", "timeout"),
        ("text = 'slow'\ndrip_s = 9", "timeout"),
    ],
)
async def test_failures_are_those_of_a_provider(play: Any, answer: str, kind: str) -> None:
    started = time.monotonic()
    with pytest.raises(ModelError) as caught:
        await play(f"[[rules]]\n{answer}", user("a"), timeout_s=0.05)
    assert caught.value.kind == kind
    assert time.monotonic() - started < 2


async def test_malformed_and_cut_arguments_arrive_as_errors(play: Any) -> None:
    malformed = await play("[[rules]]\ntool = 'x'\nargs = '{'", user("a"))
    cut = await play("[[rules]]\ntool = 'x'\nfinish = 'length'", user("a"))
    assert [reply.tool_calls[0].arguments for reply in (malformed, cut)] == [None, None]


async def test_several_tools_and_words_beside_them(play: Any) -> None:
    reply = await play("[[rules]]\ntext = 'já vejo'\ntools = [{ tool = 'x' }, { tool = 'y' }]", user("a"))
    assert (reply.text, [call.name for call in reply.tool_calls]) == ("já vejo", ["x", "y"])


async def test_json_can_come_bare_or_in_prose(play: Any) -> None:
    bare = await play("[[rules]]\njson = { intent = '{last}' }", user("a"))
    prose = await play("[[rules]]\njson = { intent = '{last}' }\nprose = true", user("a"))
    assert json.loads(bare.text) == {"intent": "a"}
    assert '```json\n{"intent": "a"}\n```' in prose.text


async def test_empty_answer_is_empty(play: Any) -> None:
    reply = await play("[[rules]]\nempty = true", user("a"))
    assert (reply.text, reply.tool_calls, reply.finish) == ("", (), "stop")


async def test_usage_is_counted_told_or_missing(play: Any) -> None:
    told = await play("[[rules]]\ntext = 'x'\nusage = { input = 5, cached = 3, output = 2, reasoning = 1 }", user("a"))
    missing = await play("[[rules]]\ntext = 'x'\nusage = 'missing'", user("a"))
    assert told.usage is not None
    assert (told.usage.input_tokens, told.usage.cache_read_tokens, told.usage.total_tokens) == (5, 3, 10)
    assert missing.usage is None


async def test_seen_prefix_counts_as_cached(play: Any) -> None:
    script, stable = "[[rules]]\ntext = 'x'", "p" * 400
    usages = [(await play(script, user(text), stable=stable)).usage for text in ("um", "dois")]
    usages.append((await play(script, user("três"), stable="p" * 200 + "q" * 200)).usage)
    assert [usage.cache_read_tokens for usage in usages if usage] == [0, 100, 50]
    assert usages[0] is not None
    assert usages[0].input_tokens >= 100


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("rules = []", "rules"),
        ("[[rules]]\ntext = 'a'\ntyop = 1", "rules.0.tyop"),
        ("[[rules]]\nburst = '('\ntext = 'a'", "regular expression"),
        ("[[rules]]\nburst = 'a'", "exactly one answer"),
        ("[[rules]]\ntext = 'a'\nempty = true", "exactly one answer"),
        ("[[rules]]\ntext = 'a'\nargs = { b = 1 }", '"args" needs "tool"'),
        ("[[rules", "not TOML"),
        ("[[rules]]\nnth = 9\ntext = 'a'", "No rule"),
    ],
)
async def test_wrong_script_says_what_is_wrong(play: Any, script: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await play(script, user("a"))
    assert words in caught.value.message


@pytest.mark.parametrize("name", ["absent", "../secret", ""])
def test_unknown_script_is_a_configuration_error(name: str) -> None:
    with pytest.raises(ConfigError):
        ScriptedModel(SHIPPED).check(f"scripted/{name}")
