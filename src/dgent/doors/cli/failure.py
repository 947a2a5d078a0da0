"""What went wrong, told to people on standard error, to programs as JSON and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from dgent.errors import DgentError, InputError

BROKEN_PIPE = 141  # what a shell reports for a program that ended because nobody read on


def exit_code(run: Callable[[], Any]) -> int:
    """Run the command line and turn whatever happens into an exit code."""
    try:
        result = run()
    except click.exceptions.Abort:
        return 130
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        return _told(InputError(error.format_message(), hint=_usage(error)))
    except BrokenPipeError:
        # Python would complain once more while it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (DgentError, KeyboardInterrupt) as error:
        return _told(error)
    except Exception as error:
        # A fault of dgent itself: whoever mends it needs the whole of it.
        import traceback

        traceback.print_exc()
        return _told(error)
    return result if isinstance(result, int) else 0


def _usage(error: click.ClickException) -> str:
    ctx = getattr(error, "ctx", None)
    return "" if ctx is None else f"see `{ctx.command_path} --help`"


def _told(error: BaseException) -> int:
    from dgent.verbs.outcome import outcome_of

    if isinstance(error, DgentError):
        tell(error, as_json=_wants_json())
    return outcome_of(error).exit


def _wants_json() -> bool:
    # The options may be what could not be read, so the words themselves are looked at.
    return any(word in ("--json", "--jsonl") for word in sys.argv[1:])


def tell(error: DgentError, as_json: bool) -> None:
    """Print an error on standard error."""
    if as_json:
        import msgspec

        told = {"ok": False, "code": error.code, "error": error.message, "hint": error.hint}
        sys.stderr.write(msgspec.json.encode(told).decode() + "\n")
        return
    from dgent import config
    from dgent.doors.cli.paint import Paint

    paint = Paint(config.wants_color("auto", sys.stderr.isatty()))
    sys.stderr.write(f"{paint('error:', fg='red', bold=True)} {paint(error.message)}\n")
    if error.hint:
        sys.stderr.write(f"{paint('hint:', fg='cyan')}  {paint(error.hint)}\n")
