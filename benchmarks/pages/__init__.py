"""Tables of a page of docs/ from runs that a command of that page trained."""
