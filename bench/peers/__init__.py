"""The libraries that Polyhead is compared with, each given the same weights."""
