"""``zaia chat``: talk to an assistant in the terminal through the same engine. Tested in ``tests/cli/test_chat.py``."""

from __future__ import annotations

import asyncio
import secrets
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from zaia_cli.cli.command import Options, command
from zaia_cli.cli.engine_parts import open_engine
from zaia_cli.cli.output import Output
from zaia_cli.cli.runtime import open_runtime
from zaia_cli.core.errors import NotFoundError, RefusedError
from zaia_cli.core.inbound import Message, Party
from zaia_cli.core.text import is_effectively_empty

if TYPE_CHECKING:
    from zaia_cli.engine.intake import Intake
    from zaia_cli.store.database import Database

__all__ = ["chat"]

_LOOK_EVERY_S = 0.05


@command(
    examples=("zaia chat", "zaia chat --assistant atendimento --org loja-exemplo", "echo 'Oi!' | zaia chat"),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def chat(
    options: Options,
    assistant: Annotated[
        str | None,
        typer.Option("--assistant", metavar="A", help="Who answers; the first by default.", show_default=False),
    ] = None,
    org: Annotated[
        str | None, typer.Option("--org", metavar="SLUG", help="The only one by default.", show_default=False)
    ] = None,
) -> None:
    """Talk to an assistant in the terminal.

    Each line is a message of a new customer on the console channel; it goes through intake, queue, turn and outbox like
    any other, and can be looked at afterwards with zaia replay. Works with a pipe: every line waits for its answer. The
    end of the input ends it.
    """
    from zaia_cli.engine.intake import Intake
    from zaia_cli.engine.worker import Worker

    async with open_runtime(options) as runtime, open_engine(runtime) as parts:
        company, account = await _console(runtime.database, org, assistant)
        talk = _Talk(runtime.database, Intake(parts.db, parts.config, parts.channels), company, account, options.output)
        options.output.note(f"console:{talk.address} of {company}; later: zaia replay console:{talk.address}")
        worker = Worker(parts, has_scheduler=False, only_channel="console")
        working = asyncio.create_task(worker.run())
        try:
            async for line in _lines(options.output):
                if not is_effectively_empty(line):
                    await talk.say(line, working)
        finally:
            worker.stop()
            await working
    options.output.json({"conversation": talk.conversation, "address": talk.address, "exchanges": talk.exchanges})


@dataclass(slots=True)
class _Talk:
    """One conversation: what was said, and what was printed of the answers."""

    db: Database
    intake: Intake
    company: str
    account: str
    output: Output
    address: str = field(default_factory=lambda: f"chat-{secrets.token_hex(4)}")
    conversation: UUID | None = None
    exchanges: list[dict[str, Any]] = field(default_factory=list)
    _told: set[str] = field(default_factory=set)

    async def say(self, text: str, working: asyncio.Task[None]) -> None:
        """Send one line and print everything that is said until nothing more is to come."""
        party = Party(self.address, (f"console:{self.address}",))
        message = Message(
            "console", self.account, secrets.token_hex(8), party, "text", text, datetime.now(UTC), raw={"text": text}
        )
        report = await self.intake.accept([message])
        if not report.items:
            raise RefusedError(f"the console account {self.account!r} is gone", hint="start again")
        row = report.items[0]
        self.conversation = row["conversation"]
        replies = await self._answers(working)
        for reply in replies:
            self.output.line(reply["text"])
            if reply["kind"] == "handoff":
                self.output.note(f"a person takes over: zaia human list, zaia replay console:{self.address}")
        if row["reference"] is None and not replies:
            self.output.note("a person has this conversation; kept for them: zaia human list")
        said = [{"kind": reply["kind"], "text": reply["text"]} for reply in replies]
        self.exchanges.append({"text": text, "reference": row["reference"], "replies": said})

    async def _answers(self, working: asyncio.Task[None]) -> list[dict[str, Any]]:
        while True:
            news = (
                await self.db.run(
                    "server.conversation_news", organization_id=self.company, conversation_id=self.conversation
                )
            )[0]
            if not news["is_waiting"]:
                break
            if working.done():
                working.result()
                raise RefusedError("the worker of this chat has stopped")
            await asyncio.sleep(_LOOK_EVERY_S)
        fresh = [reply for reply in news["replies"] if reply["id"] not in self._told]
        self._told.update(reply["id"] for reply in fresh)
        return fresh


async def _lines(output: Output) -> AsyncIterator[str]:
    """Read stdin in a thread that dies with the process, so that Ctrl+C does not wait for a line."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    source = sys.stdin

    def read() -> None:
        try:
            for line in source:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, None)
        except RuntimeError:
            return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while True:
        if source.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        line = await lines.get()
        if line is None:
            return
        yield line.rstrip("\r\n")


async def _console(db: Database, org: str | None, assistant: str | None) -> tuple[str, str]:
    """Choose the company and its console account; make the account when the assistant has none.

    Raises:
        NotFoundError: No such company or assistant, or none at all.
        RefusedError: Several companies and none was named.
    """
    from zaia_cli.store.organizations import list_organizations, read

    slugs = [row["organization"] for row in await list_organizations(db)]
    if not slugs:
        raise NotFoundError("there is no organization yet", hint="zaia org apply FILE, or zaia demo")
    if org is None and len(slugs) > 1:
        raise RefusedError(f"there are several organizations: {', '.join(slugs)}", hint="add --org SLUG")
    stored = await read(db, org or slugs[0])
    company = stored["organization"]["slug"]
    names = [row["slug"] for row in stored["assistants"]]
    accounts = [row for row in stored["channels"] if row["kind"] == "console"]
    if assistant is None:
        assistant = accounts[0]["assistant"] if accounts else names[0]
    elif assistant not in names:
        raise NotFoundError(f"{company} has no assistant {assistant!r}", hint=f"it has: {', '.join(names)}")
    own = [row["account"] for row in accounts if row["assistant"] == assistant]
    return company, own[0] if own else await _make_account(db, company, assistant)


async def _make_account(db: Database, company: str, assistant: str) -> str:
    account = f"{company}-{assistant}"
    names = ("base_url", "token_env", "app_secret_env", "verify_token_env")
    row = {"channel": "console", "account": account, "assistant": assistant, **dict.fromkeys(names, "")}
    async with db.transaction() as session:
        await session.run("reports_organizations.claim_routes", [row], slug=company)
        await session.run("reports_organizations.put_accounts", [row], slug=company)
    return account
