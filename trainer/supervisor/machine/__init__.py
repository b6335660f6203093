"""The machine below the supervisor: its identity, health, network and memory."""
