"""Resolve a request into what is trained: recipe, method, options and checks of the rows.

Numbers here do not depend on the machines; the layout on machines is in `performance`.
"""
