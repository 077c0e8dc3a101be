"""``guerdon serve REWARDS``: the functions behind an HTTP server.

- It listens on loopback by default, and on other addresses only with a token.
- SIGTERM and Ctrl-C drain it: exit code 0. A second signal ends it at once.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from guerdon._system.extras import pip_install
from guerdon.cli.arguments import add_rewards, add_workers, at_least_zero, count, positive
from guerdon.profile.exit_codes import UsageError

__all__ = ["add_to", "run"]

PORT: Final = 8000
_MOST_PORT: Final = 65535

_DESCRIPTION: Final = """\
Serve reward functions over HTTP.

REWARDS is file.py or module: every decorated function and StatefulReward instance in it, or its one Dispatcher.
file.py:a,b means only a and b, decorated or not."""

_EPILOG: Final = """\
POST /score      {"prompts": [...], "completions": [...], column: [...]} -> {"rewards", "status", "reasons"}
POST /openrlhf   OpenRLHF's remote_rm_url
POST /slime      remote_rm of slime and miles
POST /verify     NeMo-Gym
GET  /health, /ready, /metrics

The token is read from --token-file or GUERDON_SERVE_TOKEN; clients that can't send a header put it in the path:
/t/<token>/openrlhf.

Exit code: 0 after SIGTERM or Ctrl-C, once requests in flight have ended; 2 the command line or the rewards can't be
used; 128 + the signal after a second one."""


def add_to(commands: Any) -> None:
    """Add the command to the parser's subcommands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "serve",
        help="serve reward functions over HTTP",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    add_rewards(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; default: 127.0.0.1")
    parser.add_argument(
        "--port", metavar="N", type=count, default=PORT, help=f"0 for any that is free; default: {PORT}"
    )
    parser.add_argument("--token-file", metavar="FILE", help="tokens that let requests in, one a line")
    add_workers(parser)
    parser.add_argument(
        "--max-samples", metavar="N", type=positive, help="in flight and queued, 429 beyond; default: 16384"
    )
    parser.add_argument(
        "--drain-timeout",
        metavar="S",
        type=at_least_zero,
        help="seconds for requests in flight after SIGTERM; default: 30",
    )
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> int:
    """Serve until a signal comes; returns the exit code.

    Raises:
        GuerdonError: The command line or the rewards can't be used, or the extra is missing.
    """
    if options.port > _MOST_PORT:
        raise UsageError(f"--port {options.port}: expected 0 to {_MOST_PORT}.")
    try:
        from guerdon._serve.server import serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise UsageError(f"guerdon serve needs {error.name}: {pip_install('serve')}.") from None
    from guerdon._serve.address import listen, url
    from guerdon._serve.auth import read_tokens
    from guerdon._serve.settings import ServerSettings
    from guerdon.profile.load_rewards import load

    given = {
        name: getattr(options, name) for name in ("max_samples", "drain_timeout") if getattr(options, name) is not None
    }
    settings = ServerSettings(tokens=read_tokens(options.token_file), **given)
    with load(options.rewards, workers=options.workers) as dispatcher:
        sockets = listen(options.host, options.port, has_token=bool(settings.tokens))
        places = [url(one) for one in sockets]

        def started() -> None:
            for place in places:
                print(f"guerdon: serving {', '.join(dispatcher.names)} at {place}", file=sys.stderr)

        return serve(dispatcher, settings, sockets, started)
