"""Puts this folder on the path, for ``import compiled``."""
