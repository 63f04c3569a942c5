"""Golden data made by other systems (ONNX, ONNX Runtime, TensorFlow), as cases of our operators."""
