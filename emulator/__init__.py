"""Azure on localhost, as far as work on Spot scale sets meets it."""
