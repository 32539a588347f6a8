"""The plug-in for SGLang: Glassgate's gates added to those of the engine, and the record of every decision."""
