"""The Azure emulator as tests use it: in the process, as a process, one machine."""
