"""Choose where a job runs next: wait, Spot, another Spot offering, or on demand.

`policy.choose` decides on a `PolicyState`; `offering_choice.py` builds it from the rows of a job.
"""
