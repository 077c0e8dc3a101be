"""``guerdon completion SHELL``: a script that completes commands and options in that shell."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from guerdon.profile.exit_codes import SUCCESS

__all__ = ["add_to", "run"]


def add_to(commands: Any) -> None:
    """Add the command to the parser's subcommands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "completion",
        help="print a script that completes commands and options in your shell",
        description="Print a script that completes commands and options.",
        epilog="Exit code: 0 success; 2 the command line can't be used.",
    )
    parser.add_argument("shell", choices=sorted(_SCRIPTS), help="the shell that reads it")
    parser.set_defaults(run=run, parser=parser, commands=commands)


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    helps = {action.dest: action.help or "" for action in options.commands._choices_actions}
    print("\n".join(_SCRIPTS[options.shell](options.commands.choices, helps)))
    return SUCCESS


_Commands = Mapping[str, argparse.ArgumentParser]


def _bash(commands: _Commands, helps: Mapping[str, str]) -> Iterator[str]:
    yield "_guerdon() {"
    yield "  local word=${COMP_WORDS[COMP_CWORD]} words="
    yield "  if ((COMP_CWORD == 1)); then"
    yield f"    words={_quoted(' '.join(commands))}"
    yield "  elif [[ $word == -* ]]; then"
    yield "    case ${COMP_WORDS[1]} in"
    for name, parser in commands.items():
        names = [option for action in _options(parser) for option in action.option_strings]
        yield f"      {name}) words={_quoted(' '.join(names))} ;;"
    yield "    esac"
    yield "  fi"
    yield '  COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield "}"
    yield "complete -o default -F _guerdon guerdon"


def _zsh(commands: _Commands, helps: Mapping[str, str]) -> Iterator[str]:
    yield "#compdef guerdon"
    yield "_guerdon() {"
    yield "  local -a commands"
    described = (_quoted(f"{name}:{helps[name]}") for name in commands)
    yield f"  commands=({' '.join(described)})"
    yield "  if ((CURRENT == 2)); then _describe command commands; return; fi"
    yield "  local command=$words[2]"
    yield "  shift words; ((CURRENT--))"
    yield "  case $command in"
    for name, parser in commands.items():
        specs = [
            _quoted(f"*{option}[{_one_line(action).replace('[', '(').replace(']', ')')}]{_zsh_value(action)}")
            for action in _options(parser)
            for option in action.option_strings
        ]
        yield f"    {name}) _arguments {' '.join(specs)} '*:file:_files' ;;"
    yield "  esac"
    yield "}"
    yield "compdef _guerdon guerdon"
    # A file in $fpath is the body of the function when it is first called.
    yield 'if [[ $funcstack[1] == _guerdon ]]; then _guerdon "$@"; fi'


def _fish(commands: _Commands, helps: Mapping[str, str]) -> Iterator[str]:
    for name, parser in commands.items():
        yield f"complete -c guerdon -n __fish_use_subcommand -f -a {name} -d {_quoted(helps[name])}"
        for action in _options(parser):
            names = [f"-l {one[2:]}" if one.startswith("--") else f"-s {one[1:]}" for one in action.option_strings]
            value = "" if action.nargs == 0 else " -r"
            seen = _quoted(f"__fish_seen_subcommand_from {name}")
            yield f"complete -c guerdon -n {seen} {' '.join(names)}{value} -d {_quoted(_one_line(action))}"


_SCRIPTS: Final[Mapping[str, Callable[[_Commands, Mapping[str, str]], Iterator[str]]]] = {
    "bash": _bash,
    "fish": _fish,
    "zsh": _zsh,
}


def _options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings]


def _zsh_value(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest).replace(":", "\\:")
    return "" if action.nargs == 0 else f":{name}:_files"


def _one_line(action: argparse.Action) -> str:
    """Returns the help of an option, as `--help` shows it."""
    text = (action.help or "") % {**vars(action), "prog": "guerdon"}
    return " ".join(text.split())


def _quoted(text: str) -> str:
    """The text as one word, in each of the three shells."""
    return "'" + text.replace("'", "'\\''") + "'"
