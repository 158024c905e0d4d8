"""Requests and responses of generation, as pydantic models."""
