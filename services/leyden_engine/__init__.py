"""The embedded inference engine: transformers behind the same HTTP subset as vLLM.

`server.py` speaks HTTP on the asyncio loop; `scheduler.py` holds the model thread's main loop, which batches the
tokens of all requests, whatever their adapter.
"""
