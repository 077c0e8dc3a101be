"""OpenTelemetry: a dispatcher's metrics and evaluation events, by the program's own providers.

- Metrics are read from the engine when the provider's reader collects, never pushed.
- Nothing here configures OpenTelemetry. Errors in an exporter stay with the exporter; what fails
  here is warned of once, and no score depends on it.

Needs ``pip install 'opentelemetry-api>=1.35'``.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Literal

from guerdon._native import metric_families
from guerdon._system import launcher
from guerdon._system.extras import pip_install
from guerdon._system.warning import warn
from guerdon.errors import RegistrationError
from guerdon.results.status import Status

try:
    from opentelemetry import metrics
    from opentelemetry._logs import LogRecord, SeverityNumber, get_logger_provider
except ImportError as error:
    raise ImportError(f"guerdon.integrations.otel needs OpenTelemetry's API: {pip_install('otel')}.") from error

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

    from guerdon.dispatcher import Dispatcher
    from guerdon.results import RewardBatch

__all__ = ["EVENT", "Events", "Instrumentation", "instrument"]

Events = Literal["failures", "all", "none"]

EVENT: Final = "gen_ai.evaluation.result"
"""The name of the event, as the semantic conventions for generative AI have it."""

_SCOPE: Final = "guerdon"
_UNITS: Final = {"_seconds": "s", "_bytes": "By"}
# A reader asks for one instrument after another: they are all of one moment.
_FRESH_S: Final = 0.05


class Instrumentation:
    """Handle on the instruments that `instrument` registered; `close` ends the events.

    A meter provider has no way to forget an instrument: the metrics of a dispatcher that is closed
    or gone are no longer observed.
    """

    def __init__(self, dispatcher: Dispatcher, events: Events, logger_provider: LoggerProvider | None) -> None:
        from guerdon import __version__

        self._dispatcher = weakref.ref(dispatcher)
        self._wanted = events
        provider = get_logger_provider() if logger_provider is None else logger_provider
        self._logger = provider.get_logger(_SCOPE, __version__)
        self._rank = launcher.rank()
        self._open = True
        self._warned = False
        self._read_at = -1.0
        self._series: dict[str, list[Observation]] = {}

    def close(self) -> None:
        """Emits no more events, and observes no more metrics."""
        self._open = False

    def observe(self, name: str) -> list[Observation]:
        """The series of this metric now."""
        now = time.monotonic()
        if not self._series or now - self._read_at > _FRESH_S:
            self._series, self._read_at = self._read(), now
        return self._series.get(name, [])

    def _read(self) -> dict[str, list[Observation]]:
        dispatcher = self._dispatcher()
        engine = None if dispatcher is None or not self._open else dispatcher._engine.started
        series: dict[str, list[Observation]] = {}
        for name, labels, value in [] if engine is None else engine.metric_samples():
            attributes = {**dict(labels), "rank": str(self._rank)}
            series.setdefault(name, []).append(metrics.Observation(value, attributes))
        return series

    def emit(self, result: RewardBatch) -> None:
        """Emits the events of a result that has just been made."""
        if not self._open:
            return
        try:
            for cell in _cells(result, self._wanted):
                attributes = {**cell, "guerdon.rank": self._rank}
                failed = "error.type" in cell
                severity = SeverityNumber.WARN if failed else SeverityNumber.INFO
                self._logger.emit(LogRecord(event_name=EVENT, severity_number=severity, attributes=attributes))
        except Exception as error:
            if not self._warned:
                self._warned = True
                warn(f"OpenTelemetry events are not emitted: {type(error).__name__}: {error}")


def instrument(
    dispatcher: Dispatcher,
    *,
    meter_provider: MeterProvider | None = None,
    logger_provider: LoggerProvider | None = None,
    events: Events = "failures",
) -> Instrumentation:
    """Give OpenTelemetry the metrics of a dispatcher, and an event for each evaluation.

    Args:
        dispatcher: Whose; it is not kept alive.
        meter_provider: Gets observable instruments for all metrics of docs/metrics.md, named
            ``guerdon.calls`` and so on; the global one if left out.
        logger_provider: Gets an event ``gen_ai.evaluation.result`` for each failed cell of a batch
            when its result is made, on the thread and in the context that asks for it; the global
            one if left out.
        events: ``"all"`` for an event of every scored or failed cell, ``"none"`` for none.

    Raises:
        RegistrationError: `events` is not one of these.

    Examples:
        >>> import guerdon
        >>> from guerdon.integrations import otel
        >>> dispatcher = guerdon.Dispatcher([guerdon.reward(lambda text: float(len(text)), name="length")])
        >>> instrumentation = otel.instrument(dispatcher)
        >>> dispatcher.score(completions=["a"]).rewards.item()
        1.0
    """
    from guerdon import __version__

    if events not in ("failures", "all", "none"):
        raise RegistrationError(f"events={events!r}: expected 'failures', 'all' or 'none'.")
    made = Instrumentation(dispatcher, events, logger_provider)
    provider = metrics.get_meter_provider() if meter_provider is None else meter_provider
    meter = provider.get_meter(_SCOPE, __version__)
    for name, kind, _, text in metric_families():
        for suffix in ("_sum", "_count") if kind == "histogram" else ("",):
            create = meter.create_observable_gauge if kind == "gauge" else meter.create_observable_counter
            create(_name(name) + suffix.replace("_", "."), [_observer(made, name + suffix)], _unit(name, suffix), text)
    if events != "none":
        dispatcher._builder.listeners.append(made.emit)
    return made


def _observer(made: Instrumentation, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    return lambda options: made.observe(name)


def _name(name: str) -> str:
    """Returns the name by OpenTelemetry's rules: without what its exporters for Prometheus add
    themselves."""
    name = name.removeprefix("guerdon_").removesuffix("_total")
    for suffix in _UNITS:
        name = name.removesuffix(suffix)
    return f"guerdon.{name}"


def _unit(name: str, suffix: str) -> str:
    if suffix == "_count":
        return "1"
    return next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "1")


def _cells(result: RewardBatch, wanted: Events) -> Iterable[dict[str, Any]]:
    """The attributes of each event of a result."""
    size = result.rewards.shape[1]
    failures = {(failure.sample, failure.function): failure for failure in result.failures()}
    if wanted == "all":
        states, rewards = result.status.reshape(len(result), -1), result.rewards.reshape(len(result), -1)
        for sample, (row, values) in enumerate(zip(states.tolist(), rewards.tolist(), strict=True)):
            for name, state, value in zip(result.functions, row, values, strict=True):
                yield _attributes(name, sample, size, Status(state), value, failures.get((sample, name)))
    else:
        for (sample, name), failure in failures.items():
            value = result.rewards[sample // size, sample % size, result.functions.index(name)].item()
            yield _attributes(name, sample, size, failure.status, value, failure)


def _attributes(name: str, sample: int, size: int, status: Status, value: float, failure: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "gen_ai.evaluation.name": name,
        "gen_ai.evaluation.score.label": status.label,
        "guerdon.sample": sample,
        "guerdon.group": sample // size,
    }
    if value == value:
        found["gen_ai.evaluation.score.value"] = value
    if failure is not None:
        found |= {"gen_ai.evaluation.explanation": failure.reason, "error.type": failure.status.label}
    return found
