"""The paper's four networks, and any other that takes a window and returns logits."""
