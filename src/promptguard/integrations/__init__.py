"""Adapters to other tools."""
