"""From tracked runs to figures. Of rlhf_lab it imports what reads runs, nothing that trains."""
