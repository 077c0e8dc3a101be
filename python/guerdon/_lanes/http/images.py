"""Images in requests: as URLs, given or made of the image itself, and as the part of a message that
each API has for them.

An image is encoded once per batch, for all samples that share it.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Images", "image_part", "listed"]

_SIGNATURES = ((b"\x89PNG", "png"), (b"\xff\xd8", "jpeg"), (b"GIF8", "gif"), (b"BM", "bmp"))
# Formats that Anthropic's API shows its models.
_ANTHROPIC = ("image/png", "image/jpeg", "image/gif", "image/webp")


class Images:
    """Images of a batch as URLs."""

    def __init__(self) -> None:
        # By identity: the samples of a group share their images. Each is kept alive with its URL.
        self._known: dict[int, tuple[object, str]] = {}

    def url(self, image: object) -> str:
        """The address of an image: given, or the image itself.

        Raises:
            TypeError: The value is not an image.
        """
        if isinstance(image, str):
            if image.startswith(("data:", "http://", "https://")):
                return image
            raise TypeError("an image given as a string must be a data: or http(s): URL; files are not read")
        known = self._known.get(id(image))
        if known is None:
            kind, data = _encoded(image)
            known = self._known[id(image)] = image, f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
        return known[1]

    def parts(self, given: object, api: str) -> str:
        """The images of a sample as JSON, each with a comma before it.

        Raises:
            TypeError, ValueError: A value is not an image, or the API does not take such images.
        """
        return "".join(f",{json.dumps(image_part(self.url(image), api))}" for image in listed(given))


def image_part(url: str, api: str, detail: object = None) -> dict[str, Any]:
    """The part of a message that shows the image at an address.

    Raises:
        ValueError: The API does not take such images.
    """
    if api == "responses":
        return {"type": "input_image", "image_url": url, "detail": detail if isinstance(detail, str) else "auto"}
    if api != "anthropic":
        return {"type": "image_url", "image_url": {"url": url}}
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    head, _, data = url.removeprefix("data:").partition(",")
    media, *options = head.split(";")
    if media not in _ANTHROPIC or "base64" not in options:
        raise ValueError(f"api='anthropic' takes PNG, JPEG, GIF and WebP images in base64, not a URL of {head!r}")
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}


def listed(given: object) -> Sequence[object]:
    """Returns one image or several as a list."""
    if given is None:
        return ()
    return given if isinstance(given, (list, tuple)) else [given]


def _encoded(image: Any) -> tuple[str, bytes]:
    """Returns the kind of an image, and its bytes."""
    if isinstance(image, Mapping) and image.get("bytes") is not None:
        image = image["bytes"]  # the form of images that a dataset has not decoded
    if isinstance(image, (bytes, bytearray, memoryview)):
        data = bytes(image)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return "webp", data
        kind = next((kind for start, kind in _SIGNATURES if data.startswith(start)), None)
        if kind is None:
            raise TypeError("these bytes are no PNG, JPEG, GIF, BMP or WebP")
        return kind, data
    if not (hasattr(image, "save") and hasattr(image, "mode")):
        raise TypeError(f"a {type(image).__name__} is not an image: give a PIL image, bytes or a URL")
    out = io.BytesIO()
    image.save(out, format="PNG")
    return "png", out.getvalue()
