"""The mock judge of rust/testkit in a separate process: `with mock_judge("--tls") as judge`."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass
class MockJudge:
    """Its address, and the certificate to trust if it uses TLS."""

    url: str
    ca_file: str | None

    def seen(self) -> dict[str, int]:
        """Returns its counts so far."""
        context = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else None
        request = urllib.request.Request(f"{self.url}/seen", data=b"{}")
        with urllib.request.urlopen(request, context=context) as answer:
            found: dict[str, int] = json.load(answer)
        return found


def build(program: str = "mock-judge", feature: str = "judge") -> Path:
    """A program of rust/testkit, built if need be."""
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--package", "guerdon-testkit"]
    subprocess.run([*command, "--features", feature, "--bin", program], cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / program


@contextmanager
def mock_judge(*arguments: str) -> Iterator[MockJudge]:
    program = build()
    with tempfile.TemporaryDirectory() as folder:
        ca_file = f"{folder}/ca.pem"
        process = subprocess.Popen(
            [program, "--ca", ca_file, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process:  # closing its standard input ends it
            url = process.stdout.readline().strip()
            yield MockJudge(url, ca_file if url.startswith("https") else None)
