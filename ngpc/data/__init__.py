"""Reading and writing what is fitted: images."""
