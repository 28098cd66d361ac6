"""The adapter_loader: beside each replica, brings new policy versions into service, by proof.

Start with `loop.py`. Whether a replica really serves what the learner wrote is decided in `proof.py`.
"""
