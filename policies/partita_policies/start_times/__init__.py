"""When waiting jobs start: sampled futures of a partition, and how well they came true."""
