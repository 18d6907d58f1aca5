"""What the shop's project consists of."""
