"""Virtual Machine Scale Sets through Azure's SDK: templates, views, errors."""
