"""A run's figures for people who watch them in MLflow, Weights & Biases or Trackio.

`tracker` is the interface, `to_*` are its backends, `installed` finds the one that is asked for, `tracking` hands
committed versions over without ever waiting. Addresses and secrets are the trackers' own environment variables.
"""
