"""Clients of a dispatcher's monitor: its metrics over TCP, its live state over the Unix socket; and
a function to look at."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from typing import Any

from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from guerdon import Dispatcher, reward

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


@reward(lane="thread")
def scripted(text: str) -> float | None:
    """Does what its sample says; others have their length."""
    if text == "error":
        raise ValueError("no such answer")
    return None if text == "none" else float(len(text))


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def get(
    connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str] = {}, method: str = "GET"
) -> tuple[int, str, str]:
    """Status, content type and body."""
    try:
        connection.request(method, path, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
    finally:
        connection.close()


def address(dispatcher: Dispatcher) -> str:
    return str(dispatcher.stats()["metrics_address"])


def connection_to(there: str) -> socket.socket:
    host, port = there.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=60)


def text(dispatcher: Dispatcher, **headers: str) -> str:
    status, _, body = get(http.client.HTTPConnection(address(dispatcher), timeout=60), "/metrics", headers)
    assert status == 200, body
    return body


def families(body: str) -> list[Metric]:
    return list(text_string_to_metric_families(body))


def open_families(body: str) -> list[Metric]:
    return list(openmetrics.text_string_to_metric_families(body))


def series(found: list[Metric]) -> Series:
    """Every series with its value; no series comes twice."""
    all_samples = [sample for family in found for sample in family.samples]
    by_labels = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in all_samples}
    assert len(by_labels) == len(all_samples)
    return by_labels


def value(found: Series, name: str, **labels: str) -> float:
    return found[name, frozenset({"rank": "0", **labels}.items())]


def state(dispatcher: Dispatcher, query: str = "") -> dict[str, Any]:
    path = str(dispatcher.stats()["state_socket"])
    status, kind, body = get(UnixConnection(path), f"/state{query}")
    assert (status, kind) == (200, "application/json"), body
    loaded: dict[str, Any] = json.loads(body)
    return loaded
