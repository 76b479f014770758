"""Labels reviewed by people: a page, what is behind it, and a store that loses nothing."""

from labelgap.serve.reviews.extension import add_page, make_extension

__all__ = ["add_page", "make_extension"]
