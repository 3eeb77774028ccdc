"""One file a format. Knows only the model: records come in, text goes out."""
