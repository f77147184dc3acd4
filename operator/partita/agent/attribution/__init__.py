"""Which process belongs to which Pod and which allocation."""
