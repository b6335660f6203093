"""What goes wrong with one VM: its network is cut, its disk is slow, its clock is off, it dies."""
