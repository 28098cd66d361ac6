"""What agents and graders find in their environment."""

import os
import time

import anthropic
import jwt
import ollama

from leyden_contracts import RunSpec
from leyden_ledger import Claim
from leyden_runtime.tokens import Scope, Tokens
from leyden_traces import trace_id
from leyden_worker.environment import Environments, trace_parent

CLAIM = Claim("run-1", "group-1.0", 3, "group-1", "task", "train", "key#0+1", None)
SPEC = RunSpec(id="run-1", base_model="tiny", agent="a:b", grader="a:c")


def test_an_agent_is_pointed_at_leyden(environments: Environments, signing_key: str) -> None:
    env = environments.agent_import() | environments.attempt(CLAIM, SPEC)
    assert env["OPENAI_BASE_URL"] == "http://gateway:8100/v1"
    assert env["OPENAI_MODEL"] == "policy"
    assert env["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector:4318"
    assert env["OTEL_EXPORTER_OTLP_PROTOCOL"] == "http/protobuf"
    token = env["OPENAI_API_KEY"]
    assert env["OTEL_EXPORTER_OTLP_HEADERS"] == f"authorization=Bearer%20{token}"
    assert env["OTEL_RESOURCE_ATTRIBUTES"] == "leyden.run=run-1,leyden.episode=group-1.0,leyden.attempt=3"
    claims = Tokens(signing_key).verify(token, Scope.ATTEMPT)
    assert (claims.run, claims.episode, claims.attempt) == ("run-1", "group-1.0", 3)


def test_each_vendors_clients_find_the_gateway_and_the_attempts_token(environments: Environments, monkeypatch) -> None:
    env = environments.agent_import() | environments.attempt(CLAIM, SPEC)
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "OLLAMA_"))]:
        monkeypatch.delenv(name)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    claude, llama = anthropic.Anthropic(), ollama.Client()
    assert (str(claude.base_url), claude.api_key) == ("http://gateway:8100", env["OPENAI_API_KEY"])
    assert str(llama._client.base_url) == "http://gateway:8100"
    assert llama._client.headers["authorization"] == f"Bearer {env['OPENAI_API_KEY']}"


def test_the_token_outlives_the_deadline(environments: Environments, signing_key: str) -> None:
    token = environments.attempt(CLAIM, SPEC)["OPENAI_API_KEY"]
    expires = jwt.decode(token, signing_key, algorithms=["HS256"])["exp"]
    assert SPEC.episodes.timeout_s < expires - time.time() < SPEC.episodes.timeout_s + 300


def test_the_agents_own_spans_join_the_gateways_trace() -> None:
    version, trace, span, flags = trace_parent("run-1", "group-1.0", 3).split("-")
    assert (version, flags) == ("00", "01")
    assert bytes.fromhex(trace) == trace_id("run-1", "group-1.0", 3)
    assert len(bytes.fromhex(span)) == 8


def test_a_grader_holds_nothing_of_an_attempt(environments: Environments) -> None:
    assert environments.grader() == {"PATH": "/usr/bin:/bin", "SEARCH_KEY": "mine"}


def test_the_users_own_telemetry_settings_do_not_lead_elsewhere(signing_key: str) -> None:
    inherited = {
        "OPENAI_API_KEY": "the user's own",
        "ANTHROPIC_API_KEY": "the user's own",
        "ANTHROPIC_AUTH_TOKEN": "the user's own",
        "OLLAMA_API_KEY": "the user's own",
        "OLLAMA_HOST": "http://elsewhere",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://elsewhere",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=theirs",
        "OTEL_RESOURCE_ATTRIBUTES": "team=blue",
        "OTEL_SERVICE_NAME": "my-agent",
        "TRACEPARENT": "00-1-1-01",
    }
    made = Environments("http://g", "http://c", Tokens(signing_key), inherited)
    env = made.agent_import()
    assert [env[f"{vendor}_API_KEY"] for vendor in ("OPENAI", "ANTHROPIC", "OLLAMA")] == ["set-for-each-attempt"] * 3
    assert (env["OLLAMA_HOST"], "ANTHROPIC_AUTH_TOKEN" in env) == ("http://g", False)
    assert {name for name in env if name.startswith("OTEL_")} == {
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_SERVICE_NAME",
    }
    assert "TRACEPARENT" not in env
    assert made.attempt(CLAIM, SPEC)["OTEL_RESOURCE_ATTRIBUTES"].startswith("team=blue,leyden.run=run-1,")
    assert made.grader()["OPENAI_API_KEY"] == "the user's own"


def test_a_proxy_is_not_used_for_leyden(signing_key: str) -> None:
    inherited = {"HTTPS_PROXY": "http://proxy", "NO_PROXY": "intranet"}
    env = Environments("http://gateway:8100", "http://collector:1", Tokens(signing_key), inherited).agent_import()
    assert env["NO_PROXY"] == env["no_proxy"] == "intranet,gateway,collector"
    assert env["HTTPS_PROXY"] == "http://proxy"
