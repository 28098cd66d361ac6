"""Every name that Leyden reads or writes on a span. Nobody else spells them."""

RUN = "leyden.run"
EPISODE = "leyden.episode"
ATTEMPT = "leyden.attempt"
CALL = "leyden.call"
ROLE = "leyden.role"
POLICY_VERSION = "leyden.policy_version"
PROMPT_TOKEN_IDS = "leyden.prompt_token_ids"  # noqa: S105 (an attribute's name)
"""Bytes: int32 little-endian, shape [P]."""
RESPONSE_TOKEN_IDS = "leyden.response_token_ids"  # noqa: S105
"""Bytes: int32 little-endian, shape [R]."""
RESPONSE_LOGPROBS = "leyden.response_logprobs"
"""Bytes: float32 little-endian, shape [R]."""
FINISH_REASON = "leyden.finish_reason"
RESPONSE_ID = "leyden.response_id"
REPLICA = "leyden.replica"

# OpenTelemetry's semantic conventions for generative AI, so that any trace viewer understands a call.
OPERATION = "gen_ai.operation.name"
REQUEST_MODEL = "gen_ai.request.model"
TEMPERATURE = "gen_ai.request.temperature"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"

SERVICE_NAME = "service.name"
CHAT = "chat"
"""Value of `OPERATION`, and the first word of a call's span name."""
