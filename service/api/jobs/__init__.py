"""Routes of jobs: create, list, events, logs, attempts, and the graders that they use."""
