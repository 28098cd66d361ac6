"""What the engine counts."""

from prometheus_client import Counter, Gauge

RUNNING = Gauge("leyden_engine_requests_running", "Sequences in the batch")
WAITING = Gauge("leyden_engine_requests_waiting", "Requests that wait for a place in the batch")
PROMPT_TOKENS = Counter("leyden_engine_prompt_tokens", "Prompt tokens run through the model")
REUSED_TOKENS = Counter("leyden_engine_reused_tokens", "Of these, tokens that another sequence had run already")
GENERATED_TOKENS = Counter("leyden_engine_generated_tokens", "Tokens sampled")
REQUESTS = Counter("leyden_engine_requests", "Requests by route and HTTP status", ["route", "status"])
ADAPTERS = Gauge("leyden_engine_adapters", "LoRA adapters that are loaded")
