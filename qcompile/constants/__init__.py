"""What is known of constant tensors, and what is computed from them at compile time."""
