"""Lists, downloads, inspects and generates data sets."""
