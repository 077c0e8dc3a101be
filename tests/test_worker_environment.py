"""Workers get the trainer's variables, but for secrets."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from guerdon import Dispatcher, reward
from guerdon._system.worker_environment import DEFAULTS, NO_SECRETS, SECRETS, given_to, hidden, is_secret, of_workers

SECRET = """
OPENAI_API_KEY ANTHROPIC_API_KEY WANDB_API_KEY AZURE_OPENAI_KEY COMET_API_KEY HF_TOKEN HUGGING_FACE_HUB_TOKEN
GITHUB_TOKEN GH_TOKEN TOKEN AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_PROFILE AZURE_CLIENT_SECRET
GOOGLE_APPLICATION_CREDENTIALS DB_PASSWORD PGPASSWORD MYSQL_PASSWD SSH_PRIVATE_KEY GPG_PASSPHRASE NPM_TOKEN DATABASE_URL
SENTRY_DSN GITHUB_PAT openai_api_key SSH_AUTH_SOCK SECRET_KEY DJANGO_SECRETS KUBECONFIG AZURE_STORAGE_CONNECTION_STRING
REGISTRY_AUTH
"""
PLAIN = """
PATH HOME LANG TOKENIZERS_PARALLELISM MAX_TOKENS HF_HOME HF_TOKEN_PATH TRANSFORMERS_CACHE CUDA_VISIBLE_DEVICES PYTHONPATH
PYTHONHASHSEED LD_LIBRARY_PATH OMP_NUM_THREADS LOCAL_RANK MASTER_ADDR WANDB_PROJECT KEYBOARD MONKEY AUTHOR USER TMPDIR
TERM XAUTHORITY COMPATIBLE AWS_CA_BUNDLE REQUESTS_CA_BUNDLE
"""


@pytest.mark.parametrize("name", SECRET.split())
def test_a_secret_by_its_name(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", PLAIN.split())
def test_no_secret_by_its_name(name: str) -> None:
    assert not is_secret(name)


def test_workers_get_their_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"PATH": "/bin", "A_KEY": "k", "B_TOKEN": "t", "LANG": "C"})
    defaults = [(name.encode(), value.encode()) for name, value in DEFAULTS.items()]
    assert of_workers({}) == [(b"PATH", b"/bin"), (b"LANG", b"C"), *defaults]
    given = of_workers({"A_KEY": "other", "LANG": None, "NEW": "\udcff", "OMP_NUM_THREADS": None})
    assert given == [(b"PATH", b"/bin"), *defaults[1:], (b"A_KEY", b"other"), (b"NEW", b"\xff")]
    assert hidden({}) == ["A_KEY", "B_TOKEN"]
    assert hidden({"A_KEY": "other", "LANG": None, "NOT_SET": None}) == ["B_TOKEN", "LANG"]
    assert given_to(["B_TOKEN", "NOT_SET", "PATH"]) == [(b"B_TOKEN", b"t"), (b"PATH", b"/bin")]


def test_workers_name_the_program_without_its_arguments() -> None:
    def program(completion: str) -> float:
        return float(sys.argv == [completion])

    path = getattr(sys.modules["__main__"], "__file__", "")
    with Dispatcher([reward(program)], workers=1) as dispatcher:
        assert dispatcher.score(completions=[path]).rewards.item() == 1.0


def test_the_page_lists_the_patterns() -> None:
    page = (Path(__file__).parents[1] / "docs" / "isolation.md").read_text(encoding="utf-8")
    listed = page.partition("<!-- secrets -->\n")[2].partition("\n\n")[0]
    assert tuple(re.findall(r"`([^`]+)`", listed)) == SECRETS
    listed = page.partition("<!-- no secrets -->")[2].partition(",")[0]
    assert tuple(re.findall(r"`([^`]+)`", listed)) == NO_SECRETS
    listed = page.partition("<!-- defaults -->\n")[2].partition("\n\n")[0]
    assert re.findall(r"`([^`]+)`", listed) == [f"{name}={value}" for name, value in DEFAULTS.items()]
