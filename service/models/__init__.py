"""What a loaded model is, the registry, and from a folder of bundles to running models."""
