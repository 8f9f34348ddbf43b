"""`make gpu-check`: does a GPU compute what a CPU does, and how fast. Sections run by themselves."""
