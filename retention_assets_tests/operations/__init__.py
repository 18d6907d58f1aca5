"""What people do, through each of the doors that lead to it."""
