"""What is wrong with Kubernetes objects before a cluster sees them: `python -m k8s.check`.

A module per subject, each a function of a bundle that yields what it found. The schema comes first: all
others take objects for what their schema says.
"""
