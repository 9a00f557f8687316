"""The apps: pages in a browser over the public API of the packages. Only here is Gradio used."""
