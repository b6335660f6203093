"""ARM templates: read, checked, and carried out as requests to the emulator's own ARM."""
