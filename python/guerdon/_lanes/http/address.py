"""Checks addresses of servers, and reads files with keys and certificates.

- A wrong address is refused, never guessed at: ``http:host`` and ``http:///host`` are wrong.
- An address is shown without user name and password, and without what follows "?" or "#".
- A host name in other letters than ASCII is written in Punycode, as the name service has it.
- Only a small regular file is read: a device or a pipe would block or never end.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Final
from urllib.parse import unquote

from guerdon._lanes.http.leaked_keys import names_a_key
from guerdon._system.worker_environment import is_secret
from guerdon.errors import RegistrationError

__all__ = ["address", "endpoint", "read_small_file", "redacted_url"]

_ADDRESS: Final = re.compile(
    r"https?://[^/?#\s\\{}\x00-\x1f]+(/[^?#\s\\{}\x00-\x1f]*)?(\?[^#\s\\{}\x00-\x1f]*)?", re.IGNORECASE
)
_USER: Final = re.compile(r"^([a-z][a-z0-9+.-]*:/*)?[^/?#]*@", re.IGNORECASE)
# The form in which `guerdon serve` accepts it from clients that can't send a header.
_TOKEN_IN_PATH: Final = re.compile(r"https?://[^/?#]+/t/[^/?#]{16,512}(/|$)", re.IGNORECASE)
_LONGEST: Final = 1 << 20
_LONGEST_SHOWN: Final = 200


def address(function: str, option: str, value: object) -> str:
    """An address that requests can go to.

    Raises:
        RegistrationError: It is not one, or it holds a secret.
    """
    wrong = f"reward function {function!r}: {option}="
    if not isinstance(value, str) or not value.strip():
        raise RegistrationError(f"{wrong}{value!r}: expected an address, like http://localhost:8000/v1.")
    url = value.strip()
    if _USER.match(url):
        raise RegistrationError(f"{wrong} holds a user name or password: pass a key as api_key_env= or api_key_file=.")
    if not _ADDRESS.fullmatch(url) or not url.isprintable():
        hint = " Columns go into the request's JSON, not into the address." if "{" in url else ""
        raise RegistrationError(
            f"{wrong}{redacted_url(url)!r} is not an address: expected one like http://localhost:8000/v1.{hint}"
        )
    if _TOKEN_IN_PATH.match(url):
        raise RegistrationError(
            f"{wrong} has a token in its path, /t/<token>/…, which would show in logs and metrics: leave it out of the address and "
            "pass it as api_key_env= or api_key_file=, `guerdon serve` takes it as a header."
        )
    names = [unquote(name) for name in re.findall(r"[?&;]([^=&;]*)", url)]
    secret = next((name for name in names if _is_secret(name)), None)
    if secret is not None:
        raise RegistrationError(
            f"{wrong}{redacted_url(url)!r}: {secret!r} looks like a key, which would show in the logs of servers on the way. Pass it "
            "as api_key_env= or api_key_file=, with headers={'the-header': '{key}'} if it is no bearer token."
        )
    try:
        return _with_ascii_host(url)
    except UnicodeError as error:
        raise RegistrationError(f"{wrong}{redacted_url(url)!r}: its host is no name of a host: {error}.") from None


def _with_ascii_host(url: str) -> str:
    if url.isascii():
        return url
    scheme, host, rest = re.split("(?<=://)([^/?#:]+)", url, maxsplit=1)
    return scheme + host.encode("idna").decode() + rest


def _is_secret(name: str) -> bool:
    name = name.replace("-", "_")
    return is_secret(name) or names_a_key(name) or name.lower() in ("key", "sig", "signature", "code")


def endpoint(url: str, path: str) -> str:
    """The address of `path` below a base address, before its query; as it is if it ends so
    already."""
    base, mark, query = url.partition("?")
    base = base.rstrip("/")
    if path.startswith("/v1/") and base.endswith("/v1"):
        path = path.removeprefix("/v1")
    return (base if base.endswith(path) else base + path) + mark + query


def redacted_url(url: str) -> str:
    """An address without its secrets, for messages."""
    base, *hidden = re.split("(?=[?#])", _USER.sub(lambda found: (found[1] or "") + "…@", url), maxsplit=1)
    if len(base) > _LONGEST_SHOWN:
        base = base[:_LONGEST_SHOWN] + "…"
    return base + (hidden[0][0] + "…" if hidden else "")


def read_small_file(path: str) -> bytes:
    """The contents of a small regular file.

    Raises:
        OSError: It can't be read, or is not such a file; ``strerror`` says why.
    """
    try:
        # Not blocking: opening a pipe would wait for whoever writes into it.
        descriptor = os.open(os.path.expanduser(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError:
        raise OSError(0, "its name holds a NUL") from None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a regular file")
        read = file.read(_LONGEST + 1)
    if len(read) > _LONGEST:
        raise OSError(0, f"it is longer than {_LONGEST} bytes")
    return read
