"""PyTorch tensors that must not be pickled as they are. Nothing here imports torch."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["refuse_device", "small_copy"]


def refuse_device(value: Any) -> None:
    """Refuse a tensor outside the host's memory: each worker would open the device to hold it.

    Raises:
        TypeError: `value` is one.
    """
    kind = _tensor_class()
    if kind is not None and isinstance(value, kind) and value.device.type != "cpu":
        raise TypeError(f"a tensor on {value.device} would open that device in every worker; make it a .cpu() one")


def small_copy(value: Any) -> Any:
    """A copy of a tensor that shows less than half of its storage, which would be pickled whole;
    else None."""
    torch: Any = sys.modules.get("torch")
    if type(value) is not _tensor_class() or value.layout is not torch.strided or value.is_quantized:
        return None
    if value.untyped_storage().nbytes() <= 2 * value.numel() * value.element_size():
        return None
    return value.detach().clone().requires_grad_(value.requires_grad)


def _tensor_class() -> Any:
    return getattr(sys.modules.get("torch"), "Tensor", None)
