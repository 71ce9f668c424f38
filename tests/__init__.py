"""unit: no server. integration: one step and real servers. e2e: real processes. rules: code and documents."""
