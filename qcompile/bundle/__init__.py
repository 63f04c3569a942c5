"""The file format of bundles: reader and writer side by side."""
