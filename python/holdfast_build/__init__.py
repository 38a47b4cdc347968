"""Builds Holdfast: the wheel, the jars in it, and the other files of a release."""
