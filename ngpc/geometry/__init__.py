"""Cameras and rays."""
