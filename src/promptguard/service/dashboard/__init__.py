"""The web pages: overview, sessions, one session, review, playground, quality."""

from promptguard.service.dashboard.app import mount_dashboard

__all__ = ["mount_dashboard"]
