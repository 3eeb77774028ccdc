"""Shipped kernels, usable on their own. Imports nothing else of kcontract."""
