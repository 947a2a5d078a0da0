"""What went wrong, told to people on standard error, to programs as JSON and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from dgent.config.file import mask
from dgent.errors import DgentError, InputError

BROKEN_PIPE = 141  # what a shell reports for a program that ended because nobody read on
UNWRITABLE = 74  # the answer could not be written; what was done is done


def exit_code(run: Callable[[], Any]) -> int:
    """Run the command line and turn whatever happens into an exit code."""
    try:
        result = run()
        sys.stdout.flush()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.exceptions.Abort:
        return _told(KeyboardInterrupt())
    except click.ClickException as error:
        return _told(InputError(error.format_message(), hint=_usage(error)))
    except (BrokenPipeError, SystemExit):
        # click ends by itself when nobody reads on.
        _give_up_output()
        return BROKEN_PIPE
    except OSError as error:
        # Everything else that can go wrong with a file is a DgentError by now.
        _give_up_output()
        _print({"code": "output", "error": f"the answer cannot be written: {error.strerror}", "hint": ""})
        return UNWRITABLE
    except BaseException as error:
        return _told(error)
    return result if isinstance(result, int) else 0


def _give_up_output() -> None:
    # Python would complain once more while it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _usage(error: click.ClickException) -> str:
    ctx = getattr(error, "ctx", None)
    return "" if ctx is None else f"see `{ctx.command_path} --help`"


def _told(error: BaseException) -> int:
    from dgent.verbs.outcome import outcome_of

    if isinstance(error, DgentError):
        _print({"code": error.code, "error": error.message, "hint": error.hint})
    elif isinstance(error, KeyboardInterrupt):
        if wants_json():
            _print({"code": "interrupted", "error": "interrupted", "hint": ""})
    else:
        # A fault of dgent itself: whoever mends it needs the whole of it.
        if not wants_json():
            import traceback

            traceback.print_exception(error)
        reason = f"{type(error).__name__}: {error}"
        _print({"code": "fault", "error": f"a fault in dgent: {reason}", "hint": "please report it"})
    return outcome_of(error).exit


def wants_json() -> bool:
    """Whether a program reads the answer. The options may be what could not be read, so the words are."""
    words = sys.argv[1:]
    words = words[: words.index("--")] if "--" in words else words
    return "--json" in words or "--jsonl" in words


def _print(told: dict[str, str]) -> None:
    told = {name: mask(text) for name, text in told.items()}
    if wants_json():
        from dgent.doors.cli.wire import as_ascii

        sys.stderr.write(as_ascii({"ok": False, **told}) + "\n")
        return
    from dgent.config import settings
    from dgent.doors.cli.style import Paint

    paint = Paint(settings.wants_color("auto", sys.stderr.isatty()))
    lines = [paint(line) for line in told["error"].splitlines()] or [""]
    sys.stderr.write(f"{paint('error:', fg='red', bold=True)} " + "\n".join(lines) + "\n")
    if told["hint"]:
        sys.stderr.write(f"{paint('hint:', fg='cyan')}  {paint(told['hint'])}\n")
