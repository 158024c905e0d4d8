"""What goes over the wire for generation, as pydantic models: `*Request` in, `*Response` out."""
