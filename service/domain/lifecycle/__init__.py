"""Decide what happens next to a job, its attempts, its generations and its nodes.

`job.next_step` and `attempt_steps.next_step` are the two decision tables; `states.py` one floor up
lists the states that they move between.
"""
