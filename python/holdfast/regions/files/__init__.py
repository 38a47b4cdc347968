"""The files of a checkpoint folder of a pipeline, and who may use it."""
