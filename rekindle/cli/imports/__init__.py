"""`rekindle import`: convert another program's rows to training rows."""
