"""Instella for transformers.

Importing this package registers the model, so that a published folder loads with
``AutoModelForCausalLM.from_pretrained(DIR)`` and no code of the folder is run.
"""

from transformers import AutoConfig, AutoModelForCausalLM

from instella.model.configuration import InstellaConfig
from instella.model.modeling import InstellaForCausalLM

AutoConfig.register(InstellaConfig.model_type, InstellaConfig)
AutoModelForCausalLM.register(InstellaConfig, InstellaForCausalLM)

__all__ = ["InstellaConfig", "InstellaForCausalLM"]
