"""What a single training shows: memory, landscape, shift, cost, theory."""
