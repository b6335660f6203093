"""`rekindle doctor` and `rekindle audit`: checks of the machine, the service and Azure."""
