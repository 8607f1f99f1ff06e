"""Named functions from a turn to a score."""
