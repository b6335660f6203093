"""The web console: what it loads, how quick it is, and what open pages cost the api."""
