"""The command `dgent`: lists its commands without loading them; a command is built when it is called."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from dgent.config.places import private_files
from dgent.config.secret import mask
from dgent.errors import DgentError, InputError
from dgent.verbs.index import MODULES, NOUNS, SHORT

BROKEN_PIPE = 141  # the shell's code of a program that ended because its output was closed
UNWRITABLE = 74  # the answer could not be written; the change is done
GARBAGE = 50_000  # objects before the collector looks: loading modules makes many, and no garbage

BUILTIN = {
    "chat": "Talk to an agent in the terminal.",
    "code": "Have an agent work on the files of a project.",
    "acp": "Serve an editor (Zed, JetBrains, Neovim, …) over the Agent Client Protocol.",
    "mcp": "Serve an agent's host (Claude Code, Cursor, Zed, …) over the Model Context Protocol.",
    "serve": "Serve constellations to programs over HTTP.",
    "studio": "Open a browser to see what your agents know.",
    "invoke": "Call a verb by its path, such as self.data.query.",
    "demo": "Show an agent's story in the terminal, on a temporary store.",
    "completion": "Print the script that completes dgent's commands in your shell.",
    "help": "Explain a command or a verb.",
}


class Tree(click.Group):
    """A group that lists its commands by name and builds one when it is called."""

    def __init__(self, noun: str | None = None, **rest: Any) -> None:
        super().__init__(**rest)
        self.noun = noun

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names without loading the commands."""
        if self.noun is None:
            return [*SHORT, *NOUNS, *BUILTIN]
        return [id.partition(".")[2] for id in MODULES if id.partition(".")[0] == self.noun]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return the command of a name, or None."""
        if self.noun is not None:
            id = f"{self.noun}.{name}"
            return _build(id, name) if id in MODULES else None
        if name in SHORT:
            return _build(SHORT[name][0], name)
        if name in NOUNS:
            return _build_noun(name)
        return _builtin(name) if name in BUILTIN else None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find the command; raises UsageError that names the nearest for a mistyped one."""
        name = args[0]
        if self.noun is None and name == "import" and f"{args[1:2] and args[1]}.import" in MODULES:
            # `dgent import beads FILE` is `dgent beads import FILE`; a file with such a name is ./beads.
            return name, _build(f"{args[1]}.import", "import"), args[2:]
        found = self.get_command(ctx, name)
        if found is None:
            from dgent.verbs.near import find_command

            hint = find_command(name, self.noun)
            raise click.UsageError(f"there is no command {name!r}" + (f"; {hint}" if hint else ""), ctx)
        return name, found, args[1:]  # built once, which the group itself would not do

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands in groups; the root loads none for it."""
        if self.noun is not None:
            super().format_commands(ctx, formatter)
            return
        groups = {
            "Everyday": [(name, help) for name, (_, help) in SHORT.items()],
            "Everything, by noun": list(NOUNS.items()),
            "Around it": list(BUILTIN.items()),
        }
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def _build(id: str, name: str) -> click.Command:
    from dgent.doors.cli.command import command_of

    return command_of(id, name)


def _builtin(name: str) -> click.Command:
    if name in ("acp", "chat", "code", "mcp", "serve", "studio"):
        from importlib import import_module

        own: click.Command = getattr(import_module(f"dgent.doors.cli.{name}"), name + "_")
        return own
    from dgent.doors.cli import builtin

    found: click.Command = getattr(builtin, name + "_")
    return found


def _build_noun(name: str) -> click.Command:
    from dgent.doors.cli.options import door_options

    # `dgent config` alone lists the settings; the other nouns alone show their help.
    bare = name == "config"
    group = Tree(
        noun=name,
        name=name,
        help=NOUNS[name].capitalize() + ".",
        params=[*door_options()],
        invoke_without_command=bare,
        no_args_is_help=not bare,
    )
    if bare:

        @click.pass_context
        def list_settings(ctx: click.Context) -> None:
            if ctx.invoked_subcommand is None:
                ctx.invoke(_build("config.list", "list"))

        group.callback = list_settings
    return group


def root() -> Tree:
    """Build the command `dgent`."""
    from dgent.doors.cli.options import door_options

    return Tree(
        name="dgent",
        help="Where AI agents keep what they know.\n\nThe options below work behind every command too.",
        params=[*door_options(), _version()],
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        no_args_is_help=True,
    )


def _version() -> click.Option:
    def show(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
        if wanted:
            from importlib.metadata import version

            click.echo(f"dgent {version('dgent')}")
            ctx.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Say which dgent this is.",
    )


def _prepare_streams() -> None:
    """Escape letters that the terminal cannot show, and open closed streams on the null device."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - stays open until the end
        else:
            stream.reconfigure(errors="backslashreplace")


def main(args: list[str] | None = None) -> None:
    """Run the command line; exits with a code of the table in `verbs.outcome`."""
    gc.set_threshold(GARBAGE)
    _prepare_streams()
    with private_files():
        code = exit_code(lambda: root().main(args, prog_name="dgent", standalone_mode=False))
    if args is None:
        gc.freeze()  # the program ends here: looking for garbage in all that it loaded would take a while
    sys.exit(code)


# -- failures -----------------------------------------------------------------------------------


def exit_code(run: Callable[[], Any]) -> int:
    """Run the command line and return its exit code, reporting every error."""
    try:
        result = run()
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.exceptions.Abort:
        return _report(KeyboardInterrupt())
    except click.ClickException as error:
        return _report(InputError(error.format_message(), hint=_usage(error)))
    except (BrokenPipeError, SystemExit):
        # click exits by itself when its output is closed.
        _discard_output()
        return BROKEN_PIPE
    except OSError as error:
        # Other errors of files are DgentErrors by now.
        _discard_output()
        _print({"code": "output", "error": f"the answer cannot be written: {error.strerror}", "hint": ""})
        return UNWRITABLE
    except BaseException as error:
        return _report(error)
    return result if isinstance(result, int) else 0


def _discard_output() -> None:
    # Otherwise Python reports the closed output once more at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _usage(error: click.ClickException) -> str:
    ctx = getattr(error, "ctx", None)
    return "" if ctx is None else f"see `{ctx.command_path} --help`"


def _report(error: BaseException) -> int:
    from dgent.verbs.outcome import outcome_of

    if isinstance(error, DgentError):
        _print({"code": error.code, "error": error.message, "hint": error.hint})
    elif isinstance(error, KeyboardInterrupt):
        if wants_json():
            _print({"code": "interrupted", "error": "interrupted", "hint": ""})
    else:
        # A bug of dgent: its report needs the whole trace.
        if not wants_json():
            import traceback

            traceback.print_exception(error)
        reason = f"{type(error).__name__}: {error}"
        _print({"code": "fault", "error": f"a fault in dgent: {reason}", "hint": "please report it"})
    return outcome_of(error).exit


def wants_json() -> bool:
    """Check whether JSON is wanted, in the plain words: the options may be what failed to parse."""
    words = sys.argv[1:]
    words = words[: words.index("--")] if "--" in words else words
    return "--json" in words or "--jsonl" in words


def _print(error: dict[str, str]) -> None:
    error = {name: mask(text) for name, text in error.items()}
    if wants_json():
        from dgent.verbs.wire import as_ascii

        sys.stderr.write(as_ascii({"ok": False, **error}) + "\n")
        return
    from dgent.config import settings
    from dgent.doors.cli.style import Paint

    paint = Paint(settings.wants_color("auto", sys.stderr.isatty()))
    lines = [paint(line) for line in error["error"].splitlines()] or [""]
    sys.stderr.write(f"{paint('error:', fg='red', bold=True)} " + "\n".join(lines) + "\n")
    if error["hint"]:
        sys.stderr.write(f"{paint('hint:', fg='cyan')}  {paint(error['hint'])}\n")
