"""Encoding and network together: something that has a value at every position."""
