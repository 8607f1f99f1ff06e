"""The Frozen Instinct Layer."""
