"""Rows in Arrow's layout: measures their bytes, joins and cuts them."""
