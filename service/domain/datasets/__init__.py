"""Validate dataset files line by line, in every row format.

`dataset.DatasetValidator` is the entry; each `*_line.py` checks one row format.
"""
