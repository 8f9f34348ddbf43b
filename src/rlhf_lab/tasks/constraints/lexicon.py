"""The words that requests and reference answers are made of."""

from __future__ import annotations

LEXICON: dict[str, tuple[str, ...]] = {
    "adjective": tuple(
        "old calm bright quiet brave small tall warm cold soft wild gentle clever busy golden "
        "silver green purple tiny huge happy lonely proud patient curious modern ancient famous "
        "hidden broken frozen wooden narrow broad deep dark pale fresh sweet bitter lively noble "
        "polite rapid slow simple strange sturdy tender useful vivid young eager honest jolly keen "
        "loyal merry neat odd plain rare royal safe smart strong zesty daring early faithful "
        "careful pleasant remote serene blue grand dusty bold major mild moody airy".split()
    ),
    "noun": tuple(
        "sailors rivers gardens birds farmers stars clouds stones towns bakers bridges forests "
        "mountains children doctors dancers painters letters songs stories meadows oceans islands "
        "lamps markets trains tunnels visitors walls windows artists bells candles cats dogs deer "
        "eagles engines families flowers foxes friends guests hills horses houses journeys kings "
        "lakes leaves lions maps masks nests nurses owls paths pearls pilots poets ponds queens "
        "riders roads rooms roots ships shores singers streets tables teachers tents towers trees "
        "uncles valleys villages waves weavers winters workers yards zebras actors boats clocks "
        "fields feasts pots moons mules meals gates bees".split()
    ),
    "verb": tuple(
        "watch carry follow guide love build find keep cross visit paint praise remember discover "
        "protect welcome admire borrow capture describe enjoy explore face gather greet help honor "
        "imagine join know learn lift meet miss need notice observe offer picture pull push "
        "reach respect save see seek serve share shape teach thank touch trust value warm wash "
        "treat mend free feed lead move adore bless".split()
    ),
    "place": tuple(
        "near beside under over behind beyond around above below along inside across among "
        "toward past".split()
    ),
    "link": tuple("while as because although whenever until and once before after but".split()),
}
NOUNS = frozenset(LEXICON["noun"])
ADJECTIVES = frozenset(LEXICON["adjective"])

# Sentences by their number of words; longer ones are two of these with a link between them.
PATTERNS = {
    1: "noun",
    2: "noun verb",
    3: "noun verb noun",
    4: "adjective noun verb noun",
    5: "adjective noun verb adjective noun",
    6: "adjective noun verb noun place noun",
    7: "adjective noun verb adjective noun place noun",
    8: "adjective noun verb adjective noun place adjective noun",
}

# Required words, forbidden words and LEXICON: three sets without a word in common.
KEYWORDS = tuple(
    "window engine harvest mirror ladder signal copper lantern bridge pepper canvas pocket thunder "
    "velvet anchor marble compass blanket feather kettle orchard puzzle ribbon saddle timber "
    "violin whistle basket crystal dolphin".split()
)
FORBIDDEN = tuple(
    "very people good important many great world things often really also most some always "
    "different beautiful various make just even".split()
)
PALINDROMES = tuple("level radar civic kayak noon rotor deed madam refer".split())
OPENING_PHRASES = (
    "To begin with",
    "As far as anyone knows",
    "Here is what matters",
    "In a few words",
    "Let us imagine this",
    "Once upon a time",
)
CLOSING_PHRASES = (
    "now you know",
    "that is the whole story",
    "nothing more remains to be said",
    "we shall see",
    "the rest is up to you",
    "so it goes on",
)

FORMS = (
    "Write a short text about {topic}{angle}{reader}.",
    "Describe {topic}{angle}{reader}.",
    "Tell something about {topic}{angle}{reader}.",
    "Explain what is special about {topic}{angle}{reader}.",
    "Write a little story about {topic}{angle}{reader}.",
    "Write a few thoughts on {topic}{angle}{reader}.",
    "Give a brief account of {topic}{angle}{reader}.",
    "Write an advertisement for {topic}{angle}{reader}.",
)
TOPICS = tuple(
    "lighthouses bicycles libraries volcanoes penguins castles robots gardens deserts trains "
    "museums submarines bakeries telescopes glaciers orchestras spiders festivals islands markets "
    "airports candles dragons elephants farms hospitals kitchens mountains newspapers owls "
    "planets rainbows schools theaters umbrellas vineyards whales zoos bridges clocks".split()
)
ANGLES = (
    "",
    " in winter",
    " at night",
    " in a big city",
    " by the sea",
    " in the future",
    " long ago",
    " during a storm",
    " on a quiet morning",
    " seen from above",
    " in a small village",
    " on a holiday",
)
READERS = (
    "",
    " for a child",
    " for a tourist",
    " for a newspaper",
    " for a friend",
    " for a scientist",
    " for a poet",
    " for a teacher",
    " for a postcard",
    " for a school magazine",
    " for a curious neighbor",
)
