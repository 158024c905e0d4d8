"""Choosing the next token: small pure classes over the logits of one row, and one object a sequence that joins them.

Each works on one row (V) and not on a batch: V is large enough for numpy, and rows have different options.
"""
