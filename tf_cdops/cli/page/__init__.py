"""The HTML page of `tf_cdops explain`: one file, nothing else needed."""
