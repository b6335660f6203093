"""What chat templates expect: the Jinja sandbox, messages, and the form of tool calls."""
