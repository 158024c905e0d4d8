"""Training: configuration, examples, batches, optimizers, the loop, its checkpoints and its reports."""
