"""Learning the embedded model from clips that this package renders."""
