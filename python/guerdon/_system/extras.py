"""Optional packages, by the extra of this package that requires them.

Messages name the packages: `guerdon` is not on the package index, so that ``guerdon[cli]`` there
would be somebody else's.
"""

from __future__ import annotations

from typing import Final

__all__ = ["EXTRAS", "pip_install"]

EXTRAS: Final = {
    "trl": ("trl>=0.18",),
    "trl-async": ("aiohttp", "requests", "trl==1.16.*"),
    "verl": ("verl==0.9.*; python_version < '3.13'",),
    "ray": ("ray>=2.40",),
    "torch": ("torch>=2.6",),
    "parquet": ("pyarrow>=17",),
    "math": ("math-verify[antlr4_13_2]>=0.9",),
    "schema": ("jsonschema-rs>=0.60",),
    "cli": ("rich>=13.7",),
    "serve": ("starlette>=0.40", "uvicorn>=0.30"),
    "otel": ("opentelemetry-api>=1.35",),
    "journal": ("pyarrow>=17",),
}


def pip_install(extra: str) -> str:
    """The command that installs what an extra names."""
    return "pip install " + " ".join(f"'{package}'" for package in EXTRAS[extra])
