"""What people see: the pages of Dagster and of the report in a real browser, looked at and clicked through."""
