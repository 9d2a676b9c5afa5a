"""Parts of what `WgpuServer` offers, each a class that it inherits; it makes what they use."""
