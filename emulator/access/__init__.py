"""Who calls, and what they may do: sign-in, managed identities, roles, and their enforcement."""
