"""Benchmarks: each is a program that measures Rekindle from outside and prints its figures."""
