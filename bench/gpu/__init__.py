"""`python -m bench gpu`: is it right, where does it run, how fast is it, on a CUDA device beside PyTorch."""
