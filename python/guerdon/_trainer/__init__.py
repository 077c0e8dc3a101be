"""Reward columns and the trainer that calls them."""
