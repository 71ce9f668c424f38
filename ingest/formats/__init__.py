"""What senders post: one module per format, bytes to events or readings. Pure."""
