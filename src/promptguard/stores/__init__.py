"""Where sessions are kept."""

from promptguard.stores.registry import STORES, StoreOpener, open_store

__all__ = ["STORES", "StoreOpener", "open_store"]
