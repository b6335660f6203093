"""The process in which the code of a python grader runs, and its restrictions."""
