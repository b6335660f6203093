"""Operations on projects: API keys, scopes, quotas, sign-in."""
