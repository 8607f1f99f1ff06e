"""The Frozen Instinct Layer: rules and memory that time does not wear down."""

from promptguard.fil.engine import FrozenInstinct
from promptguard.fil.temporal import fold_residue, is_flagged, update_escalations

__all__ = ["FrozenInstinct", "fold_residue", "is_flagged", "update_escalations"]
