"""Routes of money: costs of jobs and projects, savings, reconciliation with Azure's bill."""
