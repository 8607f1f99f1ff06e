"""The mathematics of one prompt: pure functions over frozen values."""
