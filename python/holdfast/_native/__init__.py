"""Built files: the plugin jar with the JNI library inside."""
