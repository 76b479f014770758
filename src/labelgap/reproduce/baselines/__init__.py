"""How the methods are fitted that the papers compare with; importing this registers them."""
