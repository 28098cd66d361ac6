"""The agent contract, and the agents that ship with Leyden."""
