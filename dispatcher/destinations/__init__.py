"""Kinds of destination, one module each, behind the interface of `base.py`."""
