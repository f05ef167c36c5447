"""The paper's studies run again, beside the methods it compares itself with. Nothing here belongs to the library."""
