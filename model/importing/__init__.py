"""Models of others, made into checkpoints of this project.

`import_checkpoint` (convert.py) reads a folder as `transformers` or `sentence-transformers` write it. What differs from
family to family is in one small file each, listed in `registry.py`: how its configuration maps to ours, and a table of
weight names. Nothing is dropped or guessed: what cannot be represented is refused by name and value.
"""
