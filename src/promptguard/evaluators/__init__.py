"""Ways to judge one layer."""
