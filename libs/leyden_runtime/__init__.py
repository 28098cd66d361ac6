"""What every service needs to run: settings, logs, metrics, health, tokens, shutdown."""
