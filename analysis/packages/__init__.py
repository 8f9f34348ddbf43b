"""The numbers that rliable and Open RL Benchmark compute of runs, beside ours."""
