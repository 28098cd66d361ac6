"""The gateway: agents call it as if it were OpenAI; it records every reply's tokens as the engine made them.

`calls.py` is the way of one call. Nothing here keeps state that matters: the ledger holds versions and counts, and
a span leaves for the collector as soon as its reply does.
"""
