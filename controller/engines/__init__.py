"""The engines Glassgate decides for."""
