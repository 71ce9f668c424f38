"""Measured beside their peers: `make bench`, and the crash test, `make chaos`."""
