"""Parts of one's own for rlhf_lab. This table is all that `rlhf-lab train --help` loads of them."""

PARTS = {
    "algo": {"low_baseline": "own_project.algorithm:LowBaseline"},
    "task": {"sorting": "own_project.task:Sorting"},
    "reward": {"right_places": "own_project.reward:RightPlaces"},
    "generator": {"antithetic": "own_project.generator:Antithetic"},
    "engine": {"value_clipped": "own_project.engine:ValueClipped"},
}
