"""The protocols that agents speak, one file each. `base` says what a protocol is."""
