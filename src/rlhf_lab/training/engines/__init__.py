"""What updates the policy: one device, FSDP or DeepSpeed, behind one protocol."""
