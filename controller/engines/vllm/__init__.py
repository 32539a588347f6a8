"""The plug-in for vLLM 0.32: Glassgate's gates on its scheduler's waiting loop, and the record of what that loop did.

Nothing of vLLM is imported here; `install` and `scheduler` do that, in an environment that has it.
"""
