"""What runs a kernel to settle what the IR leaves open: oracle, inputs, engines, gates."""
