"""The table examples/posts.csv: invented questions of a cooking forum, in which three in ten tags are missing."""

from __future__ import annotations

import csv
import io
import random

N_POSTS = 400
WRITTEN, WRONG = 0.7, 0.015  # shares of the tags that were written, and of the other topics that were written wrongly
TOPICS = {
    "baking": ("bake knead proof glaze", "bread cake cookies dough brioche scones"),
    "knives": ("sharpen hone grip wipe", "blades cleavers santokus scissors machetes"),
    "meat": ("roast grill smoke braise", "bacon brisket ribs steak chops"),
    "soup": ("simmer strain thicken skim", "broth stock ramen minestrone bisque"),
    "spices": ("toast grind infuse blend", "cumin saffron turmeric peppercorns cardamom"),
    "storage": ("freeze pack refrigerate thaw", "leftovers jars containers pouches"),
}
TITLES = (
    "How do I {0} {1}?",
    "Can I {0} {1} in advance?",
    "What is the best way to {0} {1}?",
    "Why can't I {0} {1}?",
)
SENTENCES = (
    "I tried to {0} the {1} and failed.",
    "Should I {0} the {1} first?",
    "A friend told me to {0} the {1}.",
    "I want to {0} some {1} today.",
    "My book says to {0} the {1}.",
)


def make_table() -> str:
    """Return the table as CSV: id, title, content and the tags that somebody wrote."""
    rng = random.Random(0)
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(["id", "title", "content", "tags"])
    for number in range(1, N_POSTS + 1):
        topics = rng.sample(sorted(TOPICS), rng.choice([1, 2, 2, 3]))
        tags = [topic for topic in topics if rng.random() < WRITTEN]
        tags += [topic for topic in TOPICS if topic not in topics and rng.random() < WRONG]
        content = " ".join(write_sentence(rng, SENTENCES, topic) for topic in topics)
        table.writerow([f"q{number}", write_sentence(rng, TITLES, topics[0]), content, " ".join(tags)])
    return stream.getvalue()


def write_sentence(rng: random.Random, templates: tuple[str, ...], topic: str) -> str:
    """Return a sentence about a topic."""
    verbs, nouns = (words.split() for words in TOPICS[topic])
    return rng.choice(templates).format(rng.choice(verbs), rng.choice(nouns))
