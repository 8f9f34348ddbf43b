"""The nouns of the lab, its protocols, errors, limits and randomness: all rooms may import it."""
