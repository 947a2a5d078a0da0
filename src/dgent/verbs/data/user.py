"""The verb that forgets a user."""

from __future__ import annotations

from typing import Annotated

from dgent.errors import Denied, InputError
from dgent.exchange import user
from dgent.exchange.user import UserErasure
from dgent.verbs.context import Context
from dgent.verbs.data.record import DryRun
from dgent.verbs.registry import Ask, argument, verb


class ForgetUser(Ask):
    """Input of `data.forget-user`."""

    user: Annotated[str, argument("the name by which frameworks know the user")]
    dry_run: DryRun = False


@verb("data.forget-user", effect="destroy", errors=(InputError, Denied), partner=True)
async def forget_user(context: Context, ask: ForgetUser) -> UserErasure:
    """Erase all that is stored of a user for good: threads, sessions, memories, files, crumbs, records."""
    return await user.forget_user(await context.universe(), ask.user, dry_run=ask.dry_run)
