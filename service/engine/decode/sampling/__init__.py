"""Choosing the next token: small pure classes over the logits of one row, and one object a sequence that joins them.

Each works on one row (V), not on a batch: V is large, so numpy is busy enough, and the rows of a batch want different
things.
"""
