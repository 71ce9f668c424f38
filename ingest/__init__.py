"""HTTP in, stream entries out: receive -> parse -> evaluate -> observe -> route -> append."""
