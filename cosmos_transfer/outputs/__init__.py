"""What comes out: the clip, the record that says how it was made, and sheets to look at."""
