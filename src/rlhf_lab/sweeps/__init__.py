"""Many runs of one question: which, in which order, where, and what became of them."""
