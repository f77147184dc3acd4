"""What the operator knows and decides. All of it is pure but `loop`, which carries it out."""
