"""What a run will cost and how long it takes: forecasts, ideal timelines, measured phases."""
