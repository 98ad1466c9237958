"""Engines on Ferry: torchtitan, vLLM, SGLang. Each adapter is a module that its engine imports, and needs that engine.

Importing ferry.adapters imports none of them. docs/engines.md says how to turn each on.
"""
