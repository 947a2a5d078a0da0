"""The commands of a conversation: lines that begin with a slash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from dgent.doors.cli import render
from dgent.doors.cli.turn_view import describe_usage
from dgent.errors import Denied, InputError
from dgent.system.near import nearest
from dgent.verbs import registry
from dgent.verbs.caller import Caller
from dgent.verbs.context import Context

if TYPE_CHECKING:
    from dgent.doors.cli.conversation import Conversation
    from dgent.universe.universe import Universe


async def run_command(chat: Conversation, line: str) -> None:
    """Run a command such as `/search lighthouse`; raises InputError for one that there is not."""
    name, _, rest = line[1:].partition(" ")
    command = COMMANDS.get(ALIASES.get(name, name))
    if command is None:
        hint = nearest(name, NAMES) or "/help lists them"
        raise InputError(f"there is no command /{name[:40]}", hint=hint)
    await command.run(chat, rest.strip())


async def _call(chat: Conversation, verb: str, **given: Any) -> Any:
    """Call a verb as the agent, with the trust of the person at the terminal."""

    async def universe() -> Universe:
        return chat.universe

    context = Context(
        universe, settings=chat.settings, caller=Caller("terminal", chat.name, "partner"), local=True
    )
    return await registry.call(registry.find(verb), context, given)


async def _show(chat: Conversation, verb: str, **given: Any) -> None:
    found = await _call(chat, verb, **given)
    for line in render.draw(found, chat.paint, registry.find(verb).output):
        chat.write(line)


async def _help(chat: Conversation, _rest: str) -> None:
    size = max(len(f"{name} {command.takes}") for name, command in COMMANDS.items()) + 2
    for name, command in COMMANDS.items():
        chat.write(f"  {chat.paint(f'/{name} {command.takes}'.ljust(size), fg='cyan')} {command.help}")
    chat.write(chat.paint.dim("  Ctrl-C interrupts an answer; a line that ends with \\ goes on in the next"))


async def _status(chat: Conversation, _rest: str) -> None:
    agent = chat.agent
    waiting = await agent.consents.list_open(chat.name)
    rows = {
        "agent": f"{chat.name}, talking to {chat.universe.author}",
        "model": agent.model.name,
        "store": chat.settings.constellation or "",
        "this chat": describe_usage(chat.usage),
        "tools": ", ".join(str(each["name"]) for each in agent.belt.schemas()),
        "waiting for consent": str(len(waiting)),
    }
    for name, text in rows.items():
        if text:
            chat.write(f"  {chat.paint.dim(name.ljust(20))} {chat.paint(text)}")
    for line in await chat.describe_interrupted():
        chat.write(f"  {line}")


async def _memory(chat: Conversation, rest: str) -> None:
    if rest:
        await _show(chat, "block.get", label=rest)
    else:
        await _show(chat, "block.list")


async def _context(chat: Conversation, _rest: str) -> None:
    from dgent.runtime.context.draw import draw_context

    for line in draw_context(await chat.agent.context()).splitlines():
        chat.write(chat.paint(line))


async def _search(chat: Conversation, rest: str) -> None:
    if not rest:
        raise InputError("there are no words to look for", hint="/search lighthouse")
    await _show(chat, "data.search", words=rest)


async def _permit(chat: Conversation, rest: str) -> None:
    id, _, answer = rest.partition(" ")
    if not id:
        await _show(chat, "consent.list", of_agent=chat.name)
        await _show(chat, "consent.grants", of_agent=chat.name)
        return
    answer = answer.strip() or "once"
    known = answer in ("once", "scope")
    lasts = {} if known else {"lasts": answer}
    await _show(chat, "consent.answer", id=id, answer=answer if known else "duration", **lasts)


async def _deny(chat: Conversation, rest: str) -> None:
    if not rest:
        await _show(chat, "consent.list", of_agent=chat.name)
        return
    await _show(chat, "consent.answer", id=rest, answer="deny")


async def _undo(chat: Conversation, rest: str) -> None:
    try:
        found = await _call(chat, "data.undo", **({"seq": rest} if rest else {}))
    except Denied as error:
        label = error.details.get("block")
        if not label:
            raise
        await _show(chat, "block.undo", label=label)
        return
    for line in render.draw(found, chat.paint, registry.find("data.undo").output):
        chat.write(line)


async def _model(chat: Conversation, rest: str) -> None:
    if rest:
        await chat.change_model(rest)
    chat.write(chat.paint(chat.agent.model.name))


async def _resume(chat: Conversation, rest: str) -> None:
    if not await chat.agent.interrupted():
        chat.write(chat.paint.dim("nothing was interrupted"))
        return
    await chat.follow(chat.agent.resume(rest or None))


async def _verbose(chat: Conversation, _rest: str) -> None:
    chat.verbose = not chat.verbose
    chat.write(chat.paint.dim("tool calls are shown in full" if chat.verbose else "tool calls are folded"))


async def _quit(chat: Conversation, _rest: str) -> None:
    chat.leaving = True


class Command(NamedTuple):
    """One command: the words that it takes, its help, and the function that runs it."""

    takes: str
    help: str
    run: Callable[[Conversation, str], Awaitable[None]]


COMMANDS: dict[str, Command] = {
    "help": Command("", "list the commands", _help),
    "status": Command("", "show the agent, its model, what this chat took and what waits", _status),
    "memory": Command("[LABEL]", "list the blocks of the agent, or show one", _memory),
    "context": Command("", "show what the model would be shown next", _context),
    "search": Command("WORDS", "find records, crumbs and blocks by their words", _search),
    "permit": Command("[ID [once|scope|8h]]", "list what waits for consent, or allow it", _permit),
    "deny": Command("[ID]", "deny what waits for consent", _deny),
    "undo": Command("[COMMIT]", "take back the newest change, or one commit", _undo),
    "model": Command("[NAME]", "show the model, or go on with another", _model),
    "resume": Command("[BATCH]", "go on with what was interrupted", _resume),
    "verbose": Command("", "show tool calls in full, or folded again", _verbose),
    "quit": Command("", "leave; so does Ctrl-D", _quit),
}
ALIASES = {"exit": "quit", "q": "quit", "?": "help", "h": "help"}
NAMES = (*COMMANDS, *ALIASES)
