# One recipe per thing a person does. `just --list` shows them.
set shell := ["bash", "-euo", "pipefail", "-c"]

export PATH := justfile_directory() / ".venv/bin:" + env("PATH")
export VIRTUAL_ENV := justfile_directory() / ".venv"
# uv does not read pip's own settings: hand over its local wheels (CPU torch lives there on some machines).
export UV_FIND_LINKS := env("UV_FIND_LINKS", `python3 -m pip config get global.find-links 2>/dev/null || true`)
# Without this, `uv run` would swap an installed CPU torch for the CUDA build.
export UV_NO_SYNC := "1"
export TOKENIZERS_PARALLELISM := "false"
export HF_HUB_OFFLINE := "1"

default:
    @just --list

# Install everything Leyden needs into .venv (idempotent)
setup:
    test -x .venv/bin/python || python3 -m venv .venv
    test -x .venv/bin/uv || .venv/bin/python -m pip install --quiet --disable-pip-version-check uv rust-just
    .venv/bin/uv pip install --quiet -c constraints.txt -e '.[dev]'
