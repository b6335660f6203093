"""Recovery benchmark: kills every kind of process and machine in every phase of a job."""
