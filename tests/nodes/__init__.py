"""Nodes as tests use them: scripted, simulated, or the real supervisor with a stand-in trainer."""
