"""Group runs into conditions, choose which may be compared, and answer the paper's questions."""
