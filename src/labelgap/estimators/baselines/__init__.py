"""What the papers compare with, each a method in its own right."""

__all__: list[str] = []
