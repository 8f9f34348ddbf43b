"""A boundary around users' code: its failures are named, its side effects undone."""
