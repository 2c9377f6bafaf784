"""goloop's metrics for Prometheus, through prometheus_client.

    import goloop.prometheus

    goloop.prometheus.register()

Then every exporter of prometheus_client's registry includes goloop's metrics.
"""

from __future__ import annotations

from .operations.prometheus import Collector, register

__all__ = ("Collector", "register")
