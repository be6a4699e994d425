"""``zaia replay``: the story of one conversation from the log; calls nothing and sends nothing.

Tested in ``tests/cli/test_reports.py``.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from zaia_cli.cli.command import Options, command
from zaia_cli.cli.output import Output
from zaia_cli.cli.queue import Organization
from zaia_cli.cli.runtime import open_runtime
from zaia_cli.core.errors import ConfigError

__all__ = ["print_story", "replay"]

_LATER = ("recorded", "prompt", "live")


def print_story(output: Output, story: dict[str, Any]) -> None:
    """Print a story as a timeline, times in UTC."""
    from zaia_cli.reports.timeline import timeline

    conversation = story["conversation"]
    owner = f"{conversation['owner']} {conversation['owner_name']}".strip()
    output.line(
        f"{conversation['channel']}:{conversation['address']} {conversation['state']}, owner {owner}, "
        f"conversation {conversation['id']}"
    )
    output.table(
        ("at", "who", "what"), ((f"{line.at:%Y-%m-%d %H:%M:%S}", line.who, line.what) for line in timeline(story))
    )


@command(
    examples=("zaia replay whatsapp:5511900010000", "zaia replay ZA-7F3K2QXM --json"), exit_codes=(0, 1, 2, 4, 5, 6)
)
async def replay(
    options: Options,
    conversation: Annotated[
        str, typer.Argument(metavar="CONVERSATION", help="An id, ZA-…, a channel's message id, or channel:address.")
    ],
    mode: Annotated[
        str, typer.Option("--mode", metavar="M", help="show: the story from the log, without calls.")
    ] = "show",
    org: Organization = None,
) -> None:
    """Tell the story of one conversation from the log.

    Messages, acknowledgement, attempts and retries, steps with their tool calls, handoff, replies, deliveries and
    statuses in order of time (UTC). Nothing is called and nothing is sent.
    """
    from zaia_cli.reports.lookup import find
    from zaia_cli.reports.story import conversation_story

    if mode in _LATER:
        raise ConfigError(
            f"replay mode {mode!r} is not available: it comes with the evaluation harness",
            hint="--mode show",
            code="usage",
        )
    if mode != "show":
        raise ConfigError(f"no replay mode named {mode!r}", hint="--mode show", code="usage")
    async with open_runtime(options) as runtime:
        target = await find(runtime.database, conversation, organization=org)
        story = await conversation_story(runtime.database, target.organization, target.conversation_id)
    options.output.json(story)
    if not options.json:
        print_story(options.output, story)
