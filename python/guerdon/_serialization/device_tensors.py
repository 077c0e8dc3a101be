"""Tensors of a device, which must not travel: unpickling one opens its device, in every worker."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["refuse_device"]


def refuse_device(value: Any) -> None:
    """Raise if `value` is a PyTorch tensor that lies anywhere but in the host's memory. Doesn't import torch.

    Raises:
        TypeError: It does.
    """
    kind: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    if kind is not None and isinstance(value, kind) and value.device.type != "cpu":
        raise TypeError(f"a tensor on {value.device} would open that device in every worker; make it a .cpu() one")
