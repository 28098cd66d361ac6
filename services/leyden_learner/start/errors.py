"""What can be wrong with a start that only the base model's own files show."""


class StartRefused(Exception):
    """The start cannot be made from this data with this base model."""
