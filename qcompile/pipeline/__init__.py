"""From requests to a bundle: plans, code, libraries."""
