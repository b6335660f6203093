"""Plan a job: rank its offerings by cost and time, and forecast what is still to come.

`plan.make_plan` is the entry; `forecast.py` updates the figures while the job runs.
"""
