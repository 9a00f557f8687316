"""Applications: fit, evaluate, export."""
