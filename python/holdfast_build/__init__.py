"""Builds Holdfast: the wheel, the jars in it, and the files that go with a release."""
