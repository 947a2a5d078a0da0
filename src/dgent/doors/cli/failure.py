"""Report errors: as text or JSON on standard error, and as an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from dgent.config.secret import mask
from dgent.errors import DgentError, InputError

BROKEN_PIPE = 141  # the shell's code of a program that ended because its output was closed
UNWRITABLE = 74  # the answer could not be written; the change is done


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
        from dgent.doors.cli.wire import as_ascii

        sys.stderr.write(as_ascii({"ok": False, **error}) + "\n")
        return
    from dgent.config import settings
    from dgent.doors.cli.style import Paint

    paint = Paint(settings.wants_color("auto", sys.stderr.isatty()))
    lines = [paint(line) for line in error["error"].splitlines()] or [""]
    sys.stderr.write(f"{paint('error:', fg='red', bold=True)} " + "\n".join(lines) + "\n")
    if error["hint"]:
        sys.stderr.write(f"{paint('hint:', fg='cyan')}  {paint(error['hint'])}\n")
