"""Every model that is not trained here: one protocol, two implementations."""
