"""What everything stands on: values, errors, TensorFlow's private symbols."""
