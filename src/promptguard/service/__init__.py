"""The HTTP service: gateway, guard API, dashboard, manual, telemetry."""
