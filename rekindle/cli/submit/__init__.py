"""`rekindle submit`, `plan` and `presets`: build a job's request and send it."""
