"""``zaia human``: the human lane. Reading is a report; taking, answering and giving back are the engine's.

Tested in ``tests/cli/test_reports.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from zaia_cli.cli.command import Options, command, group
from zaia_cli.cli.queue import Operator, Organization, Rows, operator_name, tell
from zaia_cli.cli.replay import print_story
from zaia_cli.cli.runtime import open_runtime
from zaia_cli.core.errors import ConfigError

__all__ = ["app", "assign", "list_handoffs", "reply", "resolve", "show", "take"]

Conversation = Annotated[
    str,
    typer.Argument(metavar="CONVERSATION", help="An id, ZA-…, or channel:address.", show_default=False),
]
_COLUMNS = (
    "conversation_id",
    "organization",
    "reference",
    "address",
    "department",
    "assignee",
    "reason",
    "state",
    "unanswered",
    "created_at",
    "resolved_by",
)

app = group("List, take, answer and give back the conversations that people hold.")


@app.command("list")
@command(examples=("zaia human list", "zaia human list --assignee plantao --json"), exit_codes=(0, 1, 2, 4, 5, 6))
async def list_handoffs(
    options: Options,
    org: Organization = None,
    assignee: Annotated[str | None, typer.Option("--assignee", metavar="NAME", help="Only of this person.")] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Resolved ones as well.")] = False,
    limit: Rows = 50,
) -> None:
    """List the human lane, the longest waiting on top."""
    from zaia_cli.reports.people import handoffs
    from zaia_cli.store.organizations import require

    async with open_runtime(options) as runtime:
        await require(runtime.database, org)
        rows = await handoffs(
            runtime.database, organization=org, state=None if show_all else "open", assignee=assignee, limit=limit
        )
    options.output.json({"handoffs": rows})
    options.output.table(_COLUMNS, (tuple(row[name] for name in _COLUMNS) for row in rows))


@app.command()
@command(
    examples=("zaia human show whatsapp:5511900010000", "zaia human show ZA-7F3K2QXM --json"),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def show(options: Options, conversation: Conversation, org: Organization = None) -> None:
    """Show why a conversation is with people, and its whole history."""
    from zaia_cli.reports.lookup import find
    from zaia_cli.reports.story import conversation_story

    async with open_runtime(options) as runtime:
        target = await find(runtime.database, conversation, organization=org)
        story = await conversation_story(runtime.database, target.organization, target.conversation_id)
    options.output.json({"handoffs": story["handoffs"], "story": story})
    if options.json:
        return
    columns = ("state", "department", "assignee", "reason", "note", "created_at", "resolved_by")
    options.output.table(columns, (tuple(row[name] for name in columns) for row in story["handoffs"]))
    options.output.line("")
    print_story(options.output, story)


@app.command()
@command(
    examples=("zaia human take whatsapp:5511900010000 --as ana", "zaia human take ZA-7F3K2QXM --as ana --json"),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def take(options: Options, conversation: Conversation, by: Operator = None, org: Organization = None) -> None:
    """Take a conversation over; the agent stops at once and sends nothing more."""
    await _act(options, "take", conversation, org, by)


@app.command()
@command(
    examples=(
        "zaia human assign whatsapp:5511900010000 rui --as ana",
        "zaia human assign ZA-7F3K2QXM rui --as ana --json",
    ),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def assign(
    options: Options,
    conversation: Conversation,
    assignee: Annotated[str, typer.Argument(metavar="NAME", help="Who holds it from now on.", show_default=False)],
    by: Operator = None,
    org: Organization = None,
) -> None:
    """Name the person who holds a conversation."""
    await _act(options, "assign", conversation, org, by, assignee=assignee)


@app.command()
@command(
    examples=(
        'zaia human reply whatsapp:5511900010000 "Já estou vendo o seu pedido." --as ana',
        'zaia human reply ZA-7F3K2QXM "Pode mandar a foto?" --as ana --json',
    ),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def reply(
    options: Options,
    conversation: Conversation,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the customer reads.", show_default=False)],
    by: Operator = None,
    org: Organization = None,
) -> None:
    """Answer as a person; a worker sends it."""
    from zaia_cli.channels.sending import open_channels
    from zaia_cli.core.text import is_effectively_empty
    from zaia_cli.engine import people
    from zaia_cli.reports.lookup import find

    person = operator_name(by)
    if is_effectively_empty(text):
        raise ConfigError("an empty text is not sent", hint="write what the customer reads", code="usage")
    async with open_runtime(options) as runtime, open_channels(runtime.config.delivery) as channels:
        target = await find(runtime.database, conversation, organization=org)
        result = await people.reply(
            runtime.database, target.organization, target.conversation_id, text=text, by=person, channels=channels
        )
    tell(options.output, result)


@app.command()
@command(
    examples=(
        "zaia human resolve whatsapp:5511900010000 --as ana",
        "zaia human resolve ZA-7F3K2QXM --as ana --return-to-agent",
    ),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def resolve(
    options: Options,
    conversation: Conversation,
    by: Operator = None,
    return_to_agent: Annotated[
        bool, typer.Option("--return-to-agent", help="The agent answers what is still unanswered.")
    ] = False,
    org: Organization = None,
) -> None:
    """End a handoff."""
    await _act(options, "resolve", conversation, org, by, return_to_agent=return_to_agent)


async def _act(
    options: Options, action: str, conversation: str, org: str | None, by: str | None, **arguments: Any
) -> None:
    from zaia_cli.engine import people
    from zaia_cli.reports.lookup import find

    person = operator_name(by)
    actions: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {
        "take": people.take,
        "assign": people.assign,
        "resolve": people.resolve,
    }
    async with open_runtime(options) as runtime:
        target = await find(runtime.database, conversation, organization=org)
        result = await actions[action](
            runtime.database, target.organization, target.conversation_id, by=person, **arguments
        )
    tell(options.output, result)
