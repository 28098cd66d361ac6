"""The collector: takes spans over OTLP, makes them durable, then answers; writes each trajectory once.

`receiver` takes a request, `admission` decides which spans are kept, `segments` makes them durable, `assembler` turns
closed attempts into trajectories.
"""
