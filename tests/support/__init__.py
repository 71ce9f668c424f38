"""Real servers, a receiver with scripted answers, a proxy that loses replies, processes."""
