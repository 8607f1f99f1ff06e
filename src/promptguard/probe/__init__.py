"""Conversations that test a model for self-contradiction."""
