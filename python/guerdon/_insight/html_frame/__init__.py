"""What pages of the commands share: the frame, styles and script around them (`frame`), and text of
users made safe to show (`safe_text`)."""

from __future__ import annotations
