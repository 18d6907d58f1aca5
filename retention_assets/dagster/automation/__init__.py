"""What Dagster's daemon launches by itself: schedules, sensors and alerts."""
