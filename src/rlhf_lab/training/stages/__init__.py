"""What comes before RLHF: supervised fine-tuning, preference labels and the reward model."""
