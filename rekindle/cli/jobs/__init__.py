"""Commands about existing jobs: show, watch, logs, metrics, pause and change."""
