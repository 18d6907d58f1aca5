"""Tests of sensors and schedules: what a tick finds, launches and says. Not what their runs do."""
