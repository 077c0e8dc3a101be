"""OpenTelemetry by the SDK's exporters in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from guerdon import Dispatcher, GuerdonWarning, RegistrationError, reward
from guerdon._native import metric_families
from guerdon.integrations import otel
from tests.monitor import reading
from tests.monitor.reading import scripted

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


@reward(lane="thread", on_failure=-1.0)
def strict(text: str) -> float:
    if text == "error":
        raise KeyError(text)
    return 0.5


@pytest.fixture
def exporter() -> InMemoryLogRecordExporter:
    return InMemoryLogRecordExporter()


@pytest.fixture
def loggers(exporter: InMemoryLogRecordExporter) -> Iterator[LoggerProvider]:
    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    yield provider
    provider.shutdown()


def points(reader: InMemoryMetricReader) -> dict[str, dict[tuple[tuple[str, Any], ...], float]]:
    """The value of each series, by metric."""
    data = reader.get_metrics_data()
    found: dict[str, dict[tuple[tuple[str, Any], ...], float]] = {}
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                series = found.setdefault(metric.name, {})
                for point in metric.data.data_points:
                    series[tuple(sorted(point.attributes.items()))] = point.value
    return found


def events(exporter: InMemoryLogRecordExporter) -> list[dict[str, Any]]:
    records = [finished.log_record for finished in exporter.get_finished_logs()]
    assert {record.event_name for record in records} <= {otel.EVENT}
    return [dict(record.attributes or {}) for record in records]


def test_metrics_are_those_of_prometheus() -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    with Dispatcher([scripted, strict], metrics_port=0) as dispatcher:
        otel.instrument(dispatcher, meter_provider=meters, events="none")
        assert points(reader) == {}  # nothing runs yet
        dispatcher.score(completions=["a", "none", "error", "bcd"], num_generations=2)
        found = points(reader)
        theirs = reading.series(reading.families(reading.text(dispatcher)))
    meters.shutdown()
    assert found["guerdon.calls"][("function", "scripted"), ("rank", "0"), ("status", "ok")] == 2
    assert found["guerdon.calls"][("function", "strict"), ("rank", "0"), ("status", "error")] == 1
    assert found["guerdon.call_run.count"][("function", "strict"), ("rank", "0")] == 4
    for name, labels in theirs:
        if name == "guerdon_calls_total":
            assert found["guerdon.calls"][tuple(sorted(labels))] == theirs[name, labels]
    sums = found["guerdon.call_run.sum"]
    for (_, name), rank in sums:
        labels = frozenset({("function", name), rank})
        assert sums[("function", name), rank] == theirs["guerdon_call_run_seconds_sum", labels]


def test_a_failure_is_an_event(exporter: InMemoryLogRecordExporter, loggers: LoggerProvider) -> None:
    with Dispatcher([scripted, strict]) as dispatcher:
        otel.instrument(dispatcher, logger_provider=loggers)
        pending = dispatcher.submit(completions=["a", "none", "b", "error"], num_generations=2)
        pending.result()
        pending.result()  # made once
    first, second = events(exporter)
    assert first == {
        "gen_ai.evaluation.name": "scripted",
        "gen_ai.evaluation.score.label": "error",
        "gen_ai.evaluation.explanation": "ValueError: no such answer",
        "error.type": "error",
        "guerdon.sample": 3,
        "guerdon.group": 1,
        "guerdon.rank": 0,
    }
    assert second["gen_ai.evaluation.name"] == "strict"
    assert second["gen_ai.evaluation.score.value"] == -1.0  # what the trainer sees


def test_no_cells_or_all_are_events_where_that_is_wanted(
    exporter: InMemoryLogRecordExporter, loggers: LoggerProvider
) -> None:
    with pytest.raises(RegistrationError, match="expected 'failures', 'all' or 'none'"):
        otel.instrument(Dispatcher([scripted]), events="some")  # type: ignore[arg-type]
    with Dispatcher([scripted, strict]) as dispatcher:
        quiet = otel.instrument(dispatcher, logger_provider=loggers, events="none")
        dispatcher.score(completions=["a", "error", "b"])
        assert events(exporter) == []
        quiet.close()
        instrumentation = otel.instrument(dispatcher, logger_provider=loggers, events="all")
        dispatcher.score(completions=["abc", "none", "error"])
        found = events(exporter)
        instrumentation.close()
        dispatcher.score(completions=["abc"])
        assert len(events(exporter)) == 6
    labels = [(one["gen_ai.evaluation.name"], one["gen_ai.evaluation.score.label"]) for one in found]
    assert labels[:2] == [("scripted", "ok"), ("strict", "ok")]
    assert labels[2:] == [("scripted", "abstained"), ("strict", "ok"), ("scripted", "error"), ("strict", "error")]
    assert found[0]["gen_ai.evaluation.score.value"] == 3.0
    assert "gen_ai.evaluation.score.value" not in found[2]
    assert ["error.type" in one for one in found] == [False] * 4 + [True] * 2


@pytest.mark.fault(
    "an exporter of OpenTelemetry raises",
    sees="one warning; scores as without it",
)
def test_a_logger_that_raises_costs_no_score() -> None:
    class Broken:
        def get_logger(self, *_: object, **__: object) -> Broken:
            return self

        def emit(self, *_: object, **__: object) -> None:
            raise RuntimeError("exporter is down")

    with Dispatcher([scripted]) as dispatcher:
        otel.instrument(dispatcher, logger_provider=Broken())  # type: ignore[arg-type]
        with pytest.warns(GuerdonWarning, match="exporter is down") as shown:
            first = dispatcher.score(completions=["a", "error", "b"])
        # Python's own may be among them, of what other tests left.
        assert len([one for one in shown if one.category is GuerdonWarning]) == 1
        assert first.rewards[0, 0, 0] == 1.0
        dispatcher.score(completions=["a", "error", "b"])  # without another word


def test_the_tables_of_the_page_have_all_names() -> None:
    part = DOCS.read_text("utf-8").partition("## OpenTelemetry")[2].partition("\n## ")[0]
    attributes = {
        "gen_ai.evaluation.name",
        "gen_ai.evaluation.score.value",
        "gen_ai.evaluation.score.label",
        "gen_ai.evaluation.explanation",
        "error.type",
        "guerdon.sample",
        "guerdon.group",
        "guerdon.rank",
    }
    assert set(re.findall(r"^\| `([\w.]+)` \|", part, re.MULTILINE)) == attributes
    assert len({otel._name(name) for name, *_ in metric_families()}) == len(metric_families())
