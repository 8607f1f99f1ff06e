"""From evidence to risk, mode and action."""
