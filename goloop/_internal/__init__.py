"""What goloop is made of: private, and free to change with any release.

What programs may use stands in goloop itself, and in goloop.guest, goloop.otel, goloop.prometheus,
goloop.watchdog, goloop.workers, goloop.web_worker and goloop.uvicorn_worker.
"""
