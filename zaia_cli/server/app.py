"""The web application: where channels and other systems deliver.

Idea: a few routes over one intake. Invariant: it holds no state of its own, so any number of processes may serve.
Tested over real HTTP in ``tests/server``.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.routing import Route

from zaia_cli.channels import instagram, whatsapp
from zaia_cli.core.config import Config
from zaia_cli.core.errors import UnavailableError
from zaia_cli.core.outbound import OutboundChannel
from zaia_cli.engine.intake import Intake
from zaia_cli.server.accounts import AccountBook
from zaia_cli.server.body import BadBodyError
from zaia_cli.server.generic import GenericIntake
from zaia_cli.server.health import Health
from zaia_cli.server.site import Site, bad_body, unavailable
from zaia_cli.server.webhooks import Webhook
from zaia_cli.store.database import Database

__all__ = ["create_app"]


def create_app(
    db: Database, config: Config, channels: Mapping[str, OutboundChannel], *, is_insecure: bool = False
) -> Starlette:
    """Make the ASGI application.

    Args:
        db: Open, and left open.
        config: Limits of bodies and what intake needs.
        channels: By kind, for cutting acknowledgements and notices; nothing is sent from here.
        is_insecure: Accept accounts that have no secret configured. A configured secret is always checked.
    """
    site = Site(db, config, Intake(db, config, channels), AccountBook(db), is_insecure)
    health, generic = Health(site), GenericIntake(site)
    routes = [
        Route("/healthz", health.live),
        Route("/readyz", health.ready),
        Route("/metrics", health.metrics),
        Route("/intake/{account}", generic.deliver, methods=["POST"]),
    ]
    for kind, parse in (("whatsapp", whatsapp.parse), ("instagram", instagram.parse)):
        webhook = Webhook(site, kind, parse)
        routes += [
            Route(f"/webhooks/{kind}", webhook.challenge, methods=["GET"]),
            Route(f"/webhooks/{kind}", webhook.deliver, methods=["POST"]),
        ]
    return Starlette(routes=routes, exception_handlers={UnavailableError: unavailable, BadBodyError: bad_body})
