"""The web pages: sessions, one session, a playground, and how good the guard is."""

from promptguard.service.dashboard.app import mount_dashboard

__all__ = ["mount_dashboard"]
