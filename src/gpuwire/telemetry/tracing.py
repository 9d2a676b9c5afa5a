"""Whether and how traces are told; what tells them is in `otel`, and imported only if wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwire.errors import ConfigError
from gpuwire.telemetry.logs import Logger

if TYPE_CHECKING:
    from gpuwire.telemetry.otel import Tracer


def open_tracer(wanted: bool, service: str, logger: Logger, *, key: str) -> Tracer | None:
    """What tells OpenTelemetry of this process's work; None unless `wanted`. To be closed.

    Spans go where the program's own go, if it has configured OpenTelemetry. Else the standard
    variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, …) say where, and `service` is
    the name unless `OTEL_SERVICE_NAME` says another. `ConfigError`, which names `key`, if the extra
    `otel` is not installed.
    """
    if not wanted:
        return None
    try:
        from gpuwire.telemetry.otel import Tracer
    except ImportError as error:
        raise ConfigError(
            f"{key} needs {error.name}, which is not installed: pip install 'gpuwire[otel]'",
            key=key,
        ) from error
    return Tracer(service, logger)
