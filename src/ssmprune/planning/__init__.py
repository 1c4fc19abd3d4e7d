"""Planning: `plan` says which states stay, `make` decides it, `certificates` say how far that moves an output."""
