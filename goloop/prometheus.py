"""goloop's metrics for Prometheus, through prometheus_client.

    import goloop.prometheus

    goloop.prometheus.register()

From then on every exporter of prometheus_client's registry serves goloop's metrics, too.
"""

from __future__ import annotations

from .operations.prometheus import Collector, register

__all__ = ("Collector", "register")
