"""The console: a page for whoever is on call. `serve` is its process, `site` its table of routes."""
