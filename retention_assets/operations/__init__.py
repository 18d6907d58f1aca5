"""What people do: each operation once, from a request to a result. The command line and the Dagster jobs call it."""
