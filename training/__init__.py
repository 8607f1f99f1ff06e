"""How the shipped model and weights were made, end to end: one module per step."""
