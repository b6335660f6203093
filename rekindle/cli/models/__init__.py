"""Commands about trained models: download them and change their storage tier."""
