"""The Frozen Instinct Layer: rules and memory that time does not wear down."""

from promptguard.config import TemporalSettings
from promptguard.fil.engine import FrozenInstinct
from promptguard.fil.fitting import LabelledConversation, TimedText, fit_parameters
from promptguard.fil.temporal import fold_residue, update_escalations

__all__ = [
    "FrozenInstinct",
    "LabelledConversation",
    "TemporalSettings",
    "TimedText",
    "fit_parameters",
    "fold_residue",
    "update_escalations",
]
