"""Prompts in free words: what the text encoder learns to read.

A grammar writes prompts for a look: many words for a value, many orders, things that do not
matter, negations, styles, words that mean nothing. :func:`paraphrase` names all of a look or part
of it; :func:`read_look` takes a prompt of ``scenes.describe_look`` apart again. The words of
``benchmarks/prompts_heldout.tsv`` appear nowhere here: how well they are read is what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cosmos_transfer.inputs.prompt import split_words
from cosmos_transfer.training.scenes import VOCABULARY, Look

ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    attribute: tuple(values) for attribute, values in VOCABULARY.items()
}
"""Attribute -> its values, in the order of the heads' classes; "not said" comes after them."""

SHARE_PARTIAL = 0.3

Phrases = Mapping[str, tuple[str, ...]]

# Value -> words that stand before a noun.
TIME_ADJECTIVES: Phrases = {
    "day": ("sunlit", "bright", "daytime", "sunny", "daylit", "noonday", "well lit"),
    "dusk": ("dusky", "sunset", "evening", "golden hour", "crepuscular", "dawn"),
    "night": ("dark", "night time", "unlit", "black", "nightly", "midnight", "night"),
}
# Value -> what stands on its own.
TIME_CLAUSES: Phrases = {
    "day": (
        "day",
        "daytime",
        "daylight",
        "in daylight",
        "noon",
        "at noon",
        "by day",
        "during the day",
        "in the morning",
        "morning",
        "late morning",
        "in full sun",
        "under a bright sun",
        "sunlit",
        "the sun is high",
        "in bright light",
        "lunchtime",
        "at lunchtime",
        "in the daytime",
        "sunlight",
        "bright sunlight",
        "in sunlight",
        "lit by the sun",
        "it is day",
        "daybright",
        "natural light from the sun",
        "at high noon",
        "in the middle of the day",
        "noontime",
        "forenoon",
        "office hours",
        "in strong sunlight",
        "a bright day",
        "sun overhead",
    ),
    "dusk": (
        "dusk",
        "at dusk",
        "sunset",
        "at sunset",
        "evening light",
        "in evening light",
        "evening",
        "in the evening",
        "golden hour",
        "at golden hour",
        "early evening",
        "dawn",
        "at dawn",
        "daybreak",
        "at daybreak",
        "low sun",
        "the sun is low",
        "with a low red sun",
        "eventide",
        "fading light",
        "in fading daylight",
        "orange sky",
        "afterglow",
        "in the warm evening sun",
        "as the sun goes down",
        "when the sun sinks",
        "first light",
        "end of the day",
        "late in the day",
        "the sun on the horizon",
        "half light",
        "crepuscular light",
        "as day turns to night",
        "before night comes",
        "golden light",
        "sunup",
        "magic hour",
    ),
    "night": (
        "night",
        "at night",
        "nighttime",
        "midnight",
        "at midnight",
        "after dark",
        "by night",
        "in the dark",
        "during the night",
        "in the middle of the night",
        "late at night",
        "under a black sky",
        "dark sky",
        "under the moon",
        "by moon",
        "the moon is out",
        "with stars in the sky",
        "after hours",
        "in the dead of night",
        "it is dark",
        "it is night",
        "in deep night",
        "lit by lamps at night",
        "past midnight",
        "overnight",
        "lights off",
        "with the lights out",
        "no daylight",
        "the sun has long set",
        "dark",
        "at an hour when all sleep",
        "in the small hours",
        "in blackness",
        "nighttimes",
        "stars above",
        "full moon",
        "headlights in the dark",
        "gloom of night",
        "nocturne",
    ),
}
WEATHER_ADJECTIVES: Phrases = {
    "clear": ("dry", "clear", "sunny", "rainless", "fogless", "bright dry"),
    "fog": ("foggy", "misty", "fog covered", "vaporous", "mist shrouded", "steamy", "fogged"),
    "rain": (
        "rainy",
        "wet",
        "rain soaked",
        "rained on",
        "soaked",
        "drenched",
        "damp",
        "raining",
        "flooded",
        "stormy",
        "slick",
        "dripping",
        "rain washed",
    ),
    "snow": (
        "snowy",
        "snow covered",
        "snowbound",
        "icy",
        "snowed under",
        "white with snow",
        "frozen",
        "wintery",
        "snow clad",
        "snow capped",
        "snowing",
        "snowlike",
        "iced",
    ),
}
WEATHER_NOUNS: Phrases = {
    "clear": (
        "clear weather",
        "a clear sky",
        "dry weather",
        "clear skies",
        "good weather",
        "clear air",
        "nice weather",
        "an open sky",
        "a blue heaven",
        "good visibility conditions",
        "dryness",
    ),
    "fog": (
        "fog",
        "thick fog",
        "mist",
        "dense fog",
        "light mist",
        "fog banks",
        "foggy weather",
        "misty weather",
        "heavy fog",
        "low cloud",
        "vapour",
        "ground fog",
        "a veil of mist",
        "drifting mist",
        "fogginess",
        "white vapor",
        "mists",
        "steam",
        "pea soup fog",
    ),
    "rain": (
        "rain",
        "heavy rain",
        "rainy weather",
        "light rain",
        "wet weather",
        "a rainstorm",
        "a storm",
        "a shower",
        "steady rain",
        "raindrops",
        "puddles",
        "a cloudburst",
        "a deluge",
        "sheets of rain",
        "pelting rain",
        "rains",
        "water from the sky",
        "precipitation",
        "a tempest",
        "a squall",
        "sprinkles",
        "rainwater",
        "torrential rain",
        "wetness",
    ),
    "snow": (
        "snow",
        "snowfall",
        "snowy weather",
        "heavy snow",
        "fresh snow",
        "falling snow",
        "ice",
        "a layer of snow",
        "snowflakes",
        "sleet",
        "hail",
        "winter weather",
        "drifts of snow",
        "deep snow",
        "ice and snow",
        "snows",
        "slush",
        "frost",
        "a white blanket of snow",
        "a snow squall",
        "winter",
        "an avalanche",
        "icicles",
        "freezing cold",
    ),
}
WEATHER_CLAUSES: Phrases = {
    "clear": (
        "dry",
        "it is dry",
        "the sky is clear",
        "no clouds",
        "without clouds",
        "no rain",
        "no snow",
        "no fog",
        "without rain",
        "without snow",
        "without any fog",
        "not raining",
        "not snowing",
        "it is not raining",
        "no rain at all",
        "it does not rain",
        "never any snow",
        "it is not snowing",
        "no mist",
        "free of snow",
        "free of fog",
        "not rainy",
        "not snowy",
        "no rain and no snow",
        "neither rain nor snow",
        "not wet",
        "the rain is over",
        "the snow is gone",
        "it stopped raining",
        "not misty",
        "unclouded",
        "the fog has lifted",
    ),
    "fog": (
        "it is foggy",
        "fog everywhere",
        "covered by fog",
        "shrouded in mist",
        "fog rolls in",
        "hidden in fog",
        "one can hardly see for fog",
        "blurred by mist",
        "fog over everything",
        "poor sight",
        "hard to see far",
        "fogging up",
        "wrapped in mist",
    ),
    "rain": (
        "it is raining",
        "raining",
        "rain falls",
        "it rains",
        "rain pours down",
        "wet ground",
        "raining heavily",
        "raining cats and dogs",
        "soaked by rain",
        "wet asphalt",
        "water everywhere",
        "umbrellas out",
        "rain on the windows",
        "while it rains",
        "it rained all day",
        "wet from rain",
        "the wipers are on",
    ),
    "snow": (
        "it is snowing",
        "snowing",
        "snow falls",
        "covered in snow",
        "covered with snow",
        "it snows",
        "snow on the ground",
        "under snow",
        "white from snow",
        "snow lies everywhere",
        "buried in snow",
        "snow everywhere",
        "snowing heavily",
        "dusted with snow",
        "while it snows",
        "it snowed all day",
        "deep in snow",
        "ice on the ground",
    ),
}
TABLE_MATERIALS: Phrases = {
    "wood": (
        "wooden",
        "wood",
        "oak",
        "beech",
        "maple",
        "cherry wood",
        "plywood",
        "teak",
        "birch",
        "ash wood",
        "hardwood",
        "plank",
        "wood grain",
        "cedar",
        "elm",
        "rosewood",
        "lumber",
        "solid wood",
        "oaken",
        "ebony",
        "parquet",
        "woody",
        "chestnut wood",
        "spruce",
        "larch",
        "rustic wood",
        "softwood",
        "acacia",
        "redwood",
        "log",
        "alder",
        "poplar",
        "willow",
        "veneered",
        "carpentered",
        "chipboard",
        "driftwood",
        "pallet wood",
        "wicker",
        "cork",
    ),
    "marble": (
        "marble",
        "veined marble",
        "white marble",
        "stone",
        "limestone",
        "alabaster",
        "onyx",
        "polished stone",
        "basalt",
        "slate",
        "marbled",
        "black marble",
        "natural stone",
        "sandstone",
        "terrazzo",
        "soapstone",
        "rock",
        "carrara",
        "dolomite",
        "quartzite",
        "marmoreal",
        "polished rock",
        "gneiss",
        "mineral",
        "obsidian",
        "jade",
        "flagstone",
    ),
    "cloth": (
        "cloth covered",
        "checked cloth",
        "cloth",
        "fabric covered",
        "fabric",
        "canvas",
        "silk",
        "velvet",
        "wool",
        "felt",
        "draped",
        "woven cloth",
        "plaid",
        "satin",
        "cloth draped",
        "checkered cloth",
        "denim",
        "burlap",
        "lace",
        "muslin",
        "upholstered",
        "flannel",
        "damask",
        "calico",
        "hemp cloth",
        "jute",
        "fleece",
        "chequered cloth",
        "tweed",
        "woollen",
        "nylon",
        "polyester",
        "corduroy",
        "embroidered",
        "patterned cloth",
        "quilted",
    ),
    "metal": (
        "metal",
        "steel",
        "brushed metal",
        "brushed steel",
        "metallic",
        "sheet metal",
        "copper",
        "brass",
        "bronze",
        "tin",
        "titanium",
        "nickel",
        "galvanised",
        "polished metal",
        "alloy",
        "cast metal",
        "silver",
        "riveted",
        "tungsten",
        "sheet steel",
        "lead",
        "pewter",
        "welded",
        "metal plated",
        "magnesium",
        "cobalt",
        "gold",
        "platinum",
        "magnetic",
        "inox",
        "tinplate",
        "anodised",
        "machined",
        "armoured",
        "shiny metal",
    ),
}
COVERS: tuple[str, ...] = (
    "a tablecloth",
    "a table with a tablecloth",
    "a table under a cloth",
    "a cloth on the table",
    "a table covered with cloth",
    "a table draped in fabric",
    "a table with a checked cloth",
    "a table hidden by a sheet",
    "a table dressed in silk",
    "table linens of wool",
    "a bedsheet over the table",
    "a blanket on the table",
    "a table wearing a towel",
)
WALL_MATERIALS: Phrases = {
    "brick": (
        "brick",
        "red brick",
        "bricks",
        "old brick",
        "exposed brick",
        "bare brick",
        "bricked",
        "clay brick",
        "weathered brick",
        "burnt brick",
        "brick built",
        "bricklaid",
        "adobe brick",
        "clinker",
        "mortared brick",
        "redbrick",
        "bricky",
        "cinder block",
        "breeze block",
        "terracotta brick",
        "mortar and brick",
        "block",
        "stacked brick",
        "mudbrick",
    ),
    "plaster": (
        "plaster",
        "plastered",
        "rough plaster",
        "smooth plaster",
        "lime plaster",
        "clay plaster",
        "white plaster",
        "rendered",
        "roughcast",
        "plasterboard",
        "plasterwork",
        "cement render",
        "pebbledash",
        "loam",
        "mortar coated",
        "limewashed",
        "chalky",
        "spackled",
        "drywall",
        "lime render",
        "daubed",
        "troweled",
        "clay",
        "putty",
        "cement",
    ),
    "painted": (
        "painted",
        "colourful painted",
        "colorful painted",
        "freshly painted",
        "bright painted",
        "painted blue",
        "painted green",
        "painted yellow",
        "lacquered",
        "colour coated",
        "blue",
        "green",
        "yellow",
        "pink",
        "orange",
        "purple",
        "coloured",
        "colored",
        "colourful",
        "vividly painted",
        "graffiti covered",
        "repainted",
        "paint coated",
        "varnished",
        "teal",
        "red painted",
        "violet",
        "enamel painted",
        "gaudy",
        "colour washed",
        "multicoloured",
        "two tone painted",
        "magenta",
        "pastel",
        "mint",
        "crimson",
        "spray painted",
        "dyed",
    ),
    "tiled": (
        "tiled",
        "white tile",
        "tile",
        "tiles",
        "tile covered",
        "white tiled",
        "bathroom tile",
        "kitchen tile",
        "glazed tile",
        "square tile",
        "subway tile",
        "earthenware tile",
        "faience",
        "azulejo",
        "small tiles",
        "tiling",
        "tile clad",
        "grouted",
        "tessellated",
        "checkerboard tile",
        "glossy tile",
        "glazed",
        "stoneware tile",
        "hexagon tile",
    ),
}
WALL_CLAUSES: Phrases = {
    "brick": ("bricks on the wall", "a wall built of bricks", "brick behind", "bricks behind it"),
    "plaster": ("plaster on the wall", "a wall covered with plaster", "plaster behind"),
    "painted": (
        "paint on the wall",
        "a wall coated with paint",
        "a wall with fresh paint",
        "a wall in bright colours",
        "a wall in blue paint",
        "the wall is painted yellow",
        "a mural on the wall",
        "a wall of many colors",
        "a colour coat on the wall",
    ),
    "tiled": (
        "tiles on the wall",
        "a wall covered with tiles",
        "tiles behind it",
        "a wall of tiles",
        "tiling on the wall",
        "tiles line the wall",
        "a wall clad in square tiles",
    ),
}
SUBJECTS: Phrases = {
    "tabletop": (
        "robot arm",
        "robotic arm",
        "manipulator",
        "robot",
        "robot hand",
        "mechanical arm",
        "industrial robot",
        "arm of a robot",
        "robot manipulator",
        "robotic hand",
        "mechanical hand",
        "machine arm",
        "automaton",
        "six axis arm",
        "factory robot",
        "bionic arm",
        "android",
        "robotic claw",
        "robots",
        "robotics cell",
        "robotic tool",
        "jointed arm",
        "servo arm",
        "welding robot",
        "grasping machine",
        "lab robot",
        "robot claw",
        "pincers of a robot",
    ),
    "driving": (
        "street",
        "city street",
        "road",
        "drive",
        "country road",
        "main road",
        "town street",
        "driving scene",
        "urban street",
        "rural road",
        "streets",
        "roads",
        "car ride",
        "crossing",
        "roadway",
        "thoroughfare",
        "drive through the city",
        "suburb road",
        "side street",
        "asphalt road",
        "traffic",
        "road trip",
        "car drive",
        "intersection",
        "crossroads",
        "route",
        "carriageway",
        "track for cars",
        "junction",
        "roundabout",
        "expressway",
        "view from a car",
        "car journey",
        "paved road",
        "bridge for cars",
        "tunnel road",
        "interstate",
        "parkway",
        "turnpike",
        "city block",
        "pavement",
        "tarmac",
        "cul de sac",
    ),
}
TABLES = (
    "table",
    "table",
    "table",
    "tabletop",
    "desk",
    "bench",
    "worktop",
    "workbench",
    "counter",
    "tables",
    "work surface",
    "table top",
)
WALLS = (
    "wall",
    "wall",
    "wall",
    "wall behind",
    "wall in the background",
    "back wall",
    "walls",
    "backdrop wall",
    "wall at the back",
    "background wall",
)

# What says nothing that the model can show.
STYLES = (
    "photorealistic",
    "4k",
    "cinematic",
    "highly detailed",
    "a photo",
    "realistic video",
    "shot on film",
    "sharp focus",
    "high quality",
    "ultra hd",
    "a video",
    "wide angle",
    "footage",
    "documentary style",
    "beautiful",
    "award winning",
    "professional photography",
    "render",
    "handheld camera",
    "static camera",
    "slow motion",
    "impressive",
    "masterpiece",
    "in the style of a movie",
    "film grain",
    "a short clip",
    "hyperrealistic",
    "vivid",
    "moody",
    "calm",
    "interesting",
    "amazing",
    "a picture",
    "scene",
    "an image",
    "view",
    "a recording",
    "simulation",
    "dataset",
    "depth of field",
)
STREET_THINGS = (
    "a {c} car",
    "two {c} cars",
    "a {c} truck",
    "a {c} bus",
    "people walking",
    "a cyclist",
    "trees",
    "houses on both sides",
    "tall buildings",
    "parked cars",
    "a {c} van",
    "a dog",
    "a bridge",
    "traffic lights",
    "a {c} sign",
    "shops",
    "fields",
    "a fence",
    "pedestrians",
    "a school",
    "brick houses",
    "wooden houses",
    "a {m} fence",
    "a {c} house",
    "a row of bicycles",
    "a church",
    "children",
    "lamp posts",
    "a petrol station",
    "a metal guard rail",
    "hills",
    "a river",
    "a park",
    "a stone church",
    "a {c} motorbike",
    "birds",
    "a playground",
    "an office tower",
    "a market",
)
TABLE_THINGS = (
    "a {c} cube",
    "{c} blocks",
    "a {c} ball",
    "a {c} cup",
    "some boxes",
    "a bowl",
    "a plate",
    "tools",
    "a {c} bottle",
    "screws",
    "a {m} box",
    "a {m} cube",
    "a {m} cup",
    "a {c} cylinder",
    "sorting parts",
    "stacking blocks",
    "picking up a {c} cube",
    "grasping a {m} ball",
    "a laptop",
    "fruit",
    "a {c} book",
    "a plant",
    "a camera",
    "wires",
    "a {m} toy",
    "a {m} plate",
    "a clock",
    "holding a {m} rod",
    "pushing a {c} box",
    "pouring a drink",
    "coffee mugs",
    "a {c} toy car",
    "assembling a machine",
    "painting a {c} model",
    "a cardboard box",
    "cutlery",
    "paper",
    "a pen",
)
COLOURS = (
    "red",
    "blue",
    "green",
    "yellow",
    "white",
    "black",
    "orange",
    "purple",
    "grey",
    "brown",
    "pink",
    "big",
    "small",
    "shiny",
    "old",
    "new",
    "striped",
    "plastic",
    "rubber",
)
OTHER_THINGS = (
    "a cat",
    "music",
    "a piano",
    "a horse",
    "an elephant",
    "happiness",
    "a spaceship",
    "the sea",
    "a birthday",
    "people talking",
    "a football match",
    "a computer",
    "a king",
    "history",
    "food",
    "a dragon",
    "love",
    "a wedding",
    "mathematics",
    "a mountain",
    "a boat",
    "news",
    "politics",
    "a guitar",
    "a doctor",
    "money",
    "a novel",
    "science",
    "an actor",
    "a chess game",
    "a fish",
)
ROBOT_LOOKS = (
    "white",
    "black",
    "steel",
    "metal",
    "yellow",
    "orange",
    "small",
    "big",
    "new",
    "old",
    "silver",
    "plastic",
    "heavy",
    "grey",
    "six axis",
    "modern",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPrompt:
    """A prompt and what it says: attribute -> value, only those that it names."""

    text: str
    attributes: Mapping[str, str]


def read_look(prompt: str) -> dict[str, str]:
    """What a prompt of ``scenes.describe_look`` names: attribute -> value, the family included.

    Exact for those prompts alone; other prompts give what their fixed words say.
    """
    words = f" {' '.join(split_words(prompt))} "
    found: dict[str, str] = {}
    for attribute, values in VOCABULARY.items():
        for value, phrases in values.items():
            if any(f" {' '.join(split_words(phrase))} " in words for phrase in phrases):
                found[attribute] = value
    return found


def paraphrase(look: Look | Mapping[str, str], rng: np.random.Generator) -> str:
    """A prompt in free words for a look.

    Most of them name all its attributes; the others a part, so that the model learns that the
    rest is open.

    Args:
        look: The look, or its attributes as :func:`read_look` gives them.
        rng: Decides the words.
    """
    attributes = dict(look) if isinstance(look, Mapping) else look.attributes()
    if isinstance(look, Look):
        attributes["family"] = look.family
    if rng.random() < SHARE_PARTIAL:
        kept = {name: value for name, value in attributes.items() if rng.random() < 0.6}
        attributes = kept or attributes
    return write_prompt(attributes, rng).text


def reword(prompts: Sequence[str], rng: np.random.Generator, *, share_empty: float) -> list[str]:
    """Prompts of ``scenes.describe_look`` in other words, some of them empty, for guidance."""
    return [
        "" if rng.random() < share_empty else paraphrase(read_look(prompt), rng)
        for prompt in prompts
    ]


def draw_attributes(rng: np.random.Generator) -> dict[str, str]:
    """Attributes that a prompt may name together; each may be missing, all of them now and then."""
    if rng.random() < 0.04:
        return {}
    family = _pick(rng, ATTRIBUTES["family"])
    names = ["time_of_day", *(("weather",) if family == "driving" else ("table", "wall"))]
    share = 1.0 if rng.random() < 0.5 else 0.5
    named = {name: _pick(rng, ATTRIBUTES[name]) for name in names if rng.random() < share}
    if rng.random() < 0.85:
        named["family"] = family
    return named


def write_prompt(attributes: Mapping[str, str], rng: np.random.Generator) -> LabelledPrompt:
    """Write a prompt that names ``attributes`` and nothing else that the model can show.

    A table implies the family "tabletop", and is labelled so.

    Args:
        attributes: Attribute -> value; any part of a look.
        rng: Decides words, order, and what else is mentioned.
    """
    labels = dict(attributes)
    if "table" in attributes:
        labels["family"] = "tabletop"
    indoors = "table" in attributes or "wall" in attributes
    family = labels.get("family", "tabletop" if indoors else None)
    parts = (
        _table_parts(attributes, rng) if family == "tabletop" else _street_parts(attributes, rng)
    )
    things = {"tabletop": TABLE_THINGS, "driving": STREET_THINGS}.get(family or "", OTHER_THINGS)
    while rng.random() < 0.35:
        parts.append(_thing(_pick(rng, things), rng))
    while rng.random() < 0.35:
        parts.append(_pick(rng, STYLES))
    while rng.random() < 0.15:
        parts.append(_nonsense(rng))
    if not parts:
        parts.append(_thing(_pick(rng, OTHER_THINGS), rng))
    if rng.random() < 0.5:
        parts = [parts[int(index)] for index in rng.permutation(len(parts))]
    text = _pick(rng, (", ", ", ", ", ", " ", ". ", " and ", "; ")).join(parts)
    return LabelledPrompt(
        text=_misspell(text, rng) if rng.random() < 0.1 else text, attributes=labels
    )


def _street_parts(attributes: Mapping[str, str], rng: np.random.Generator) -> list[str]:
    """What is shown, and clauses to go with it."""
    time, weather = attributes.get("time_of_day"), attributes.get("weather")
    noun = _pick(rng, SUBJECTS["driving"]) if "family" in attributes else ""
    adjectives, parts = [], []
    if weather is not None:
        kind = rng.random()
        if kind < 0.4 and noun:
            adjectives.append(_pick(rng, WEATHER_ADJECTIVES[weather]))
        elif kind < 0.75:
            form = _pick(
                rng, ("in {}", "with {}", "{}", "{}", "through {}", "during {}", "there is {}")
            )
            parts.append(form.format(_pick(rng, WEATHER_NOUNS[weather])))
        else:
            parts.append(_pick(rng, WEATHER_CLAUSES[weather]))
        if rng.random() < 0.15:
            parts.append(_denied_weather(weather, rng))
    if time is not None:
        if rng.random() < 0.3 and noun:
            adjectives.append(_pick(rng, TIME_ADJECTIVES[time]))
        else:
            parts.append(_time_clause(time, rng))
    if noun:
        if rng.random() < 0.5:
            adjectives.reverse()
        if rng.random() < 0.2:
            adjectives.append(
                _pick(rng, ("empty", "busy", "narrow", "wide", "long", "quiet", "old"))
            )
        shown = _with_article(" ".join([*adjectives, noun]), rng)
        form = _pick(
            rng,
            (
                "{}",
                "{}",
                "{}",
                "driving on {}",
                "view of {}",
                "on {}",
                "a car on {}",
                "looking down {}",
                "cars on {}",
                "{} seen from a car",
            ),
        )
        parts.insert(0, form.format(shown))
    return parts


def _table_parts(attributes: Mapping[str, str], rng: np.random.Generator) -> list[str]:
    """What is shown, and clauses to go with it."""
    parts = []
    robot = ""
    if "family" in attributes:
        look = f"{_pick(rng, ROBOT_LOOKS)} " if rng.random() < 0.2 else ""
        robot = _with_article(f"{look}{_pick(rng, SUBJECTS['tabletop'])}", rng)
    surface = ""
    if "table" in attributes:
        surface = _surface(attributes["table"], rng)
    elif rng.random() < 0.2 and robot:
        # Not a material that a table can have here: nothing said.
        material = _pick(rng, WALL_MATERIALS[_pick(rng, ("brick", "plaster", "painted"))])
        noun = _pick(rng, TABLES)
        surface = f"a {material} {noun}" if rng.random() < 0.6 else f"a {noun}"
    if robot and surface and rng.random() < 0.7:
        form = _pick(
            rng,
            (
                "{r} on {s}",
                "{r} on {s}",
                "{s} and {r}",
                "{r} above {s}",
                "{r} at {s}",
                "{s} with {r}",
                "{r} over {s}",
                "on {s} stands {r}",
            ),
        )
        parts.append(form.format(r=robot, s=surface))
    else:
        parts += [part for part in (robot, surface) if part]
    if "table" in attributes and rng.random() < 0.08:
        others = [value for value in ATTRIBUTES["table"] if value != attributes["table"]]
        other = _pick(rng, TABLE_MATERIALS[_pick(rng, others)])
        parts.append(_pick(rng, (f"not {other}", f"no {other} table", f"not a {other} table")))
    if "wall" in attributes:
        parts.append(_wall(attributes["wall"], rng))
        if rng.random() < 0.08:
            others = [value for value in ATTRIBUTES["wall"] if value != attributes["wall"]]
            other = _pick(rng, WALL_MATERIALS[_pick(rng, others)])
            parts.append(_pick(rng, (f"no {other} wall", f"no {other}", f"wall not {other}")))
    elif rng.random() < 0.15 and robot:
        materials = TABLE_MATERIALS[_pick(rng, ("wood", "cloth", "metal"))]
        wall = _pick(rng, WALLS)
        parts.append(f"a {_pick(rng, materials)} {wall}" if rng.random() < 0.6 else f"a {wall}")
    if "time_of_day" in attributes:
        time = attributes["time_of_day"]
        if rng.random() < 0.15:
            room = _pick(rng, ("room", "lab", "scene", "workshop", "factory", "kitchen", "hall"))
            parts.append(f"a {_pick(rng, TIME_ADJECTIVES[time])} {room}")
        else:
            parts.append(_time_clause(time, rng))
    return parts


def _surface(value: str, rng: np.random.Generator) -> str:
    if value == "cloth" and rng.random() < 0.35:
        return _pick(rng, COVERS)
    material, noun = _pick(rng, TABLE_MATERIALS[value]), _pick(rng, TABLES)
    form = _pick(
        rng,
        (
            "{a}",
            "{a}",
            "{a}",
            "a {n} made of {m}",
            "a {n} of {m}",
            "{m} on the {n}",
            "the {n} is {m}",
            "the {n} is made of {m}",
            "{n}: {m}",
            "a {n} in {m}",
            "a {n} that is {m}",
            "a {n} with a {m} top",
        ),
    )
    return form.format(a=_with_article(f"{material} {noun}", rng), m=material, n=noun)


def _wall(value: str, rng: np.random.Generator) -> str:
    if rng.random() < 0.15:
        return _pick(rng, WALL_CLAUSES[value])
    material, noun = _pick(rng, WALL_MATERIALS[value]), _pick(rng, WALLS)
    form = _pick(
        rng,
        (
            "{a}",
            "{a}",
            "{a}",
            "{m} {n}",
            "in front of {a}",
            "before {a}",
            "a wall of {m}",
            "{a} behind it",
            "the wall is {m}",
            "wall: {m}",
            "behind it {a}",
            "{m} behind",
            "a wall made of {m}",
        ),
    )
    return form.format(a=_with_article(f"{material} {noun}", rng), m=material, n=noun)


def _time_clause(value: str, rng: np.random.Generator) -> str:
    clause = _pick(rng, TIME_CLAUSES[value])
    if rng.random() < 0.06:
        other = _pick(rng, [name for name in ATTRIBUTES["time_of_day"] if name != value])
        clause = f"{clause}, not {other}"
    return clause


def _denied_weather(value: str, rng: np.random.Generator) -> str:
    """Another weather, said not to be there."""
    other = _pick(rng, [name for name in ("fog", "rain", "snow") if name != value])
    noun, adjective = _pick(rng, WEATHER_NOUNS[other]), _pick(rng, WEATHER_ADJECTIVES[other])
    bare = noun.removeprefix("a ").removeprefix("an ")
    return _pick(
        rng,
        (
            f"no {bare}",
            f"without {noun}",
            f"not {adjective}",
            f"but no {bare}",
            f"without any {bare}",
        ),
    )


def _thing(form: str, rng: np.random.Generator) -> str:
    # Materials of things that are not the table: read by their place, not by their word.
    materials = TABLE_MATERIALS[_pick(rng, tuple(TABLE_MATERIALS))]
    return form.format(c=_pick(rng, COLOURS), m=_pick(rng, materials))


def _nonsense(rng: np.random.Generator) -> str:
    letters = rng.choice(list("bcdfgklmnprstvxzaeiou"), int(rng.integers(4, 9)))
    return "".join(letters)


def _misspell(text: str, rng: np.random.Generator) -> str:
    """Exchange, drop or double one letter."""
    place = int(rng.integers(max(1, len(text) - 1)))
    pair = text[place : place + 2]
    if not pair.isalpha():
        return text
    return text[:place] + _pick(rng, (pair[::-1], pair[0], pair[0] + pair)) + text[place + 2 :]


def _with_article(noun: str, rng: np.random.Generator) -> str:
    article = "an" if noun[0] in "aeiou" else "a"
    return f"{_pick(rng, (article, article, article, 'the', 'some'))} {noun}"


def _pick(rng: np.random.Generator, options: Sequence[str]) -> str:
    return options[int(rng.integers(len(options)))]
