"""One folder for each task that a model is served for."""
