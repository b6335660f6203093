"""Routes of projects: API keys and sign-in."""
