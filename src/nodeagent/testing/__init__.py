"""What embedders and our own tests share: virtual time, builders, scripted runtimes."""
