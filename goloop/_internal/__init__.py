"""Private modules of goloop, which may change with any release.

The public names are in goloop itself, and in goloop.guest, goloop.otel, goloop.prometheus,
goloop.watchdog, goloop.workers, goloop.web_worker and goloop.uvicorn_worker.
"""
