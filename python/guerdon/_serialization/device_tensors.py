"""Tensors of a device must not be sent to workers: each worker would open the device."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["refuse_device"]


def refuse_device(value: Any) -> None:
    """Refuse a PyTorch tensor outside the host's memory. Doesn't import torch.

    Raises:
        TypeError: `value` is one.
    """
    kind: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    if kind is not None and isinstance(value, kind) and value.device.type != "cpu":
        raise TypeError(f"a tensor on {value.device} would open that device in every worker; make it a .cpu() one")
