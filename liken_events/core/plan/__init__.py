"""From what is there and what is wanted to the changes between them."""
