"""Look at data before they are trained on: what a folder holds, and what is odd about trials."""
