"""The transformer in PyTorch: configuration, layers, tokenizer, training, evaluation, checkpoints.

`model.config` and `model.tokenizer` are free of torch, because the serving process imports them.
"""
