"""Upstream language models."""
