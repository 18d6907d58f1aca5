"""What people ask for: one module for each noun, with its requests, operations and results, and the commands made of them."""
