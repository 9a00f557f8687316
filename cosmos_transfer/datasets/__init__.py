"""Robot datasets in and out: what is recorded stays, what the cameras saw changes."""
