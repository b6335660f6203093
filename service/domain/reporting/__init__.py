"""Report a job to its user: status message, timeline, progress and result file."""
