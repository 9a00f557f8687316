"""Batches: a job is a table of items, worked by processes that may die at any moment."""
