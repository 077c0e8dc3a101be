"""The nodes of a cluster in `guerdon top`."""

from __future__ import annotations

import io
import json

from rich.console import Console

from guerdon.cli.top.state import NodeRow, read
from guerdon.cli.top.tables import nodes_table


def test_nodes_have_a_line_each_without_control_characters() -> None:
    nodes = [
        {"name": "worker-3", "state": "ready", "slots": 16, "calls": 20, "ended": 4711},
        {"name": "worker-4\x1b[2J", "state": "lost", "slots": "many"},
    ]
    state = read(json.dumps({"nodes": nodes}).encode(), 1)
    assert state.nodes[0] == NodeRow("worker-3", "ready", 16, 20, 4711)
    assert (state.nodes[1].state, state.nodes[1].slots) == ("lost", 0)
    shown = io.StringIO()
    Console(file=shown, width=80).print(nodes_table(state.nodes, 80))
    text = shown.getvalue()
    assert "\x1b" not in text
    assert all(word in text for word in ("worker-3", "ready", "16", "20", "worker-4", "lost"))
