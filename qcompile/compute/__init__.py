"""From a description to tensor expressions: spec -> TE -> PrimFunc with named blocks."""
