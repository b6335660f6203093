"""The request for a job, as the API, the command line and the planner share it."""
