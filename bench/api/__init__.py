"""What a request costs the service: CPU of the api process, beside a bare FastAPI app."""
