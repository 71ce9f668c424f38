"""What ingest, dispatcher and ops share: settings, keys, scripts, the alert's stored form."""

__version__ = "0.1.0"
