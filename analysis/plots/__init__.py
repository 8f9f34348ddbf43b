"""From runs to a figure: curves, ends, paired differences, fronts, heat maps, timelines."""
