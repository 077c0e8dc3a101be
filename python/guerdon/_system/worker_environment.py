"""The environment of workers: the trainer's, without its secrets.

- A variable that matches `SECRETS` by name reaches no worker and not the zygote, unless a function
  names it (`env=`: only that function gets it) or the dispatcher sets it (`worker_env=`).
- Libraries start no threads and touch no accelerator when they are imported (`DEFAULTS`) unless the
  trainer's environment or `worker_env` overrides that: there is one worker a core, and a process
  with threads or an accelerator in use can't be forked.
- It is read once, when the engine starts: a restarted zygote gets the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from typing import Final

__all__ = ["DEFAULTS", "NO_SECRETS", "SECRETS", "given_to", "hidden", "is_secret", "of_workers"]

SECRETS: Final = (
    "*_KEY",  # OPENAI_API_KEY, WANDB_API_KEY, AZURE_OPENAI_KEY
    "*APIKEY",
    "*_KEY_ID",
    "*TOKEN",  # HF_TOKEN, GITHUB_TOKEN; not TOKENIZERS_PARALLELISM, not MAX_TOKENS
    "*SECRET*",
    "*PASSWORD*",
    "*PASSWD*",
    "*PASSPHRASE*",
    "*CREDENTIAL*",  # GOOGLE_APPLICATION_CREDENTIALS
    "*_PAT",
    "*_AUTH",
    "*_DSN",
    "*DATABASE_URL",
    "*CONNECTION_STRING",
    "AWS_*",
    "KUBECONFIG",
    "SSH_AUTH_SOCK",
)
"""Shell patterns of the names of variables that workers don't get, in any case of letters."""

NO_SECRETS: Final = ("*_CA_BUNDLE",)  # AWS_CA_BUNDLE: place of certificates
"""Patterns of names that workers get all the same."""

DEFAULTS: Final = {
    "OMP_NUM_THREADS": "1",  # torch, MKL, pyarrow's pool for computing
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # pyarrow, and so pandas and datasets
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # torch.cuda.is_available() then makes no CUDA context
}
"""Variables that workers have by default."""

_SECRET: Final = re.compile("|".join(translate(pattern) for pattern in SECRETS))
_NO_SECRET: Final = re.compile("|".join(translate(pattern) for pattern in NO_SECRETS))


def is_secret(name: str) -> bool:
    """Returns whether a variable of this name is hidden from workers by default."""
    name = name.upper()
    return _SECRET.match(name) is not None and _NO_SECRET.match(name) is None


def hidden(worker_env: Mapping[str, str | None]) -> list[str]:
    """Names of this process's variables that no worker gets by default."""
    return sorted(
        name for name in os.environ if worker_env.get(name) is None and (is_secret(name) or name in worker_env)
    )


def of_workers(worker_env: Mapping[str, str | None]) -> list[tuple[bytes, bytes]]:
    """The whole environment of the zygote, and so of the workers.

    Args:
        worker_env: Variables to set for all of them; None leaves one out.
    """
    found = {name: value for name, value in os.environ.items() if not is_secret(name)}
    for name, default in DEFAULTS.items():
        found.setdefault(name, default)
    for name, value in worker_env.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = value
    return _encoded(found.items())


def given_to(names: Iterable[str]) -> list[tuple[bytes, bytes]]:
    """The variables of this process that a function named, as far as they are set."""
    return _encoded((name, os.environ[name]) for name in names if name in os.environ)


def _encoded(variables: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(os.fsencode(name), os.fsencode(value)) for name, value in variables]
