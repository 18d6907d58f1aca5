"""What people see of a step in Dagster: numbers over time, tables and plots, as metadata of a materialization."""
