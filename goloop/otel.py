"""goloop's metrics and incidents for OpenTelemetry.

import goloop.otel

goloop.otel.instrument()
"""

from __future__ import annotations

from .operations.otel import Instrumentation, instrument

__all__ = ("Instrumentation", "instrument")
