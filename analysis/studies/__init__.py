"""Commands that each answer one question about runs in the terminal, or write one page of docs/."""
