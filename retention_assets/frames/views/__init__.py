"""What its branches say about each transaction: chains, views, latest views, protection."""
