"""What the commands have in common: options, reading logs and settings, and printing."""
