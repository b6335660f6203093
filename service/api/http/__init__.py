"""HTTP below the routes: protocol, limits, errors, pagination, streams, shutdown."""
