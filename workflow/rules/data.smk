# Sources, held-out items, synthetic problems, tokenizer, and the tokens of each training stage.


rule source:
    input:
        unpack(inputs_of("source_{source}")),
    output:
        manifest("source_{source}"),
    log:
        log_of("source_{source}"),
    benchmark:
        benchmark_of("source_{source}")
    conda:
        "../envs/python.yaml"
    threads: 1
    resources:
        **resources_of("source_{source}"),
    params:
        fingerprint=fingerprint_of("source_{source}"),
    shell:
        "instella stage source_{wildcards.source} --log {log:q}"


rule heldout:
    input:
        unpack(inputs_of("heldout")),
    output:
        manifest("heldout"),
    log:
        log_of("heldout"),
    benchmark:
        benchmark_of("heldout")
    conda:
        "../envs/python.yaml"
    threads: 1
    resources:
        **resources_of("heldout"),
    params:
        stage="heldout",
        fingerprint=FINGERPRINTS["heldout"],
    shell:
        "instella stage {params.stage} --log {log:q}"


use rule heldout as synthetic_abstract with:
    input:
        unpack(inputs_of("synthetic_abstract")),
    output:
        manifest("synthetic_abstract"),
    log:
        log_of("synthetic_abstract"),
    benchmark:
        benchmark_of("synthetic_abstract")
    resources:
        **resources_of("synthetic_abstract"),
    params:
        stage="synthetic_abstract",
        fingerprint=FINGERPRINTS["synthetic_abstract"],


use rule heldout as synthetic_program with:
    input:
        unpack(inputs_of("synthetic_program")),
    output:
        manifest("synthetic_program"),
    log:
        log_of("synthetic_program"),
    benchmark:
        benchmark_of("synthetic_program")
    resources:
        **resources_of("synthetic_program"),
    params:
        stage="synthetic_program",
        fingerprint=FINGERPRINTS["synthetic_program"],


use rule heldout as synthetic_values with:
    input:
        unpack(inputs_of("synthetic_values")),
    output:
        manifest("synthetic_values"),
    log:
        log_of("synthetic_values"),
    benchmark:
        benchmark_of("synthetic_values")
    resources:
        **resources_of("synthetic_values"),
    params:
        stage="synthetic_values",
        fingerprint=FINGERPRINTS["synthetic_values"],


use rule heldout as synthetic_solution with:
    input:
        unpack(inputs_of("synthetic_solution")),
    output:
        manifest("synthetic_solution"),
    log:
        log_of("synthetic_solution"),
    benchmark:
        benchmark_of("synthetic_solution")
    resources:
        **resources_of("synthetic_solution"),
    params:
        stage="synthetic_solution",
        fingerprint=FINGERPRINTS["synthetic_solution"],


use rule heldout as tokenizer with:
    input:
        unpack(inputs_of("tokenizer")),
    output:
        manifest("tokenizer"),
    log:
        log_of("tokenizer"),
    benchmark:
        benchmark_of("tokenizer")
    resources:
        **resources_of("tokenizer"),
    params:
        stage="tokenizer",
        fingerprint=FINGERPRINTS["tokenizer"],


use rule heldout as tokens_pretrain_stage1 with:
    input:
        unpack(inputs_of("tokens_pretrain_stage1")),
    output:
        manifest("tokens_pretrain_stage1"),
    log:
        log_of("tokens_pretrain_stage1"),
    benchmark:
        benchmark_of("tokens_pretrain_stage1")
    threads: PLACEMENT.workers
    resources:
        **resources_of("tokens_pretrain_stage1"),
    params:
        stage="tokens_pretrain_stage1",
        fingerprint=FINGERPRINTS["tokens_pretrain_stage1"],


use rule heldout as tokens_pretrain_stage2 with:
    input:
        unpack(inputs_of("tokens_pretrain_stage2")),
    output:
        manifest("tokens_pretrain_stage2"),
    log:
        log_of("tokens_pretrain_stage2"),
    benchmark:
        benchmark_of("tokens_pretrain_stage2")
    threads: PLACEMENT.workers
    resources:
        **resources_of("tokens_pretrain_stage2"),
    params:
        stage="tokens_pretrain_stage2",
        fingerprint=FINGERPRINTS["tokens_pretrain_stage2"],


use rule heldout as tokens_sft with:
    input:
        unpack(inputs_of("tokens_sft")),
    output:
        manifest("tokens_sft"),
    log:
        log_of("tokens_sft"),
    benchmark:
        benchmark_of("tokens_sft")
    threads: PLACEMENT.workers
    resources:
        **resources_of("tokens_sft"),
    params:
        stage="tokens_sft",
        fingerprint=FINGERPRINTS["tokens_sft"],


use rule heldout as tokens_dpo with:
    input:
        unpack(inputs_of("tokens_dpo")),
    output:
        manifest("tokens_dpo"),
    log:
        log_of("tokens_dpo"),
    benchmark:
        benchmark_of("tokens_dpo")
    threads: PLACEMENT.workers
    resources:
        **resources_of("tokens_dpo"),
    params:
        stage="tokens_dpo",
        fingerprint=FINGERPRINTS["tokens_dpo"],


use rule heldout as tokens_math_sft1 with:
    input:
        unpack(inputs_of("tokens_math_sft1")),
    output:
        manifest("tokens_math_sft1"),
    log:
        log_of("tokens_math_sft1"),
    benchmark:
        benchmark_of("tokens_math_sft1")
    threads: PLACEMENT.workers
    resources:
        **resources_of("tokens_math_sft1"),
    params:
        stage="tokens_math_sft1",
        fingerprint=FINGERPRINTS["tokens_math_sft1"],


use rule heldout as tokens_math_sft2 with:
    input:
        unpack(inputs_of("tokens_math_sft2")),
    output:
        manifest("tokens_math_sft2"),
    log:
        log_of("tokens_math_sft2"),
    benchmark:
        benchmark_of("tokens_math_sft2")
    threads: PLACEMENT.workers
    resources:
        **resources_of("tokens_math_sft2"),
    params:
        stage="tokens_math_sft2",
        fingerprint=FINGERPRINTS["tokens_math_sft2"],


use rule heldout as tokens_grpo1 with:
    input:
        unpack(inputs_of("tokens_grpo1")),
    output:
        manifest("tokens_grpo1"),
    log:
        log_of("tokens_grpo1"),
    benchmark:
        benchmark_of("tokens_grpo1")
    threads: PLACEMENT.workers
    resources:
        **resources_of("tokens_grpo1"),
    params:
        stage="tokens_grpo1",
        fingerprint=FINGERPRINTS["tokens_grpo1"],


use rule heldout as tokens_grpo2 with:
    input:
        unpack(inputs_of("tokens_grpo2")),
    output:
        manifest("tokens_grpo2"),
    log:
        log_of("tokens_grpo2"),
    benchmark:
        benchmark_of("tokens_grpo2")
    threads: PLACEMENT.workers
    resources:
        **resources_of("tokens_grpo2"),
    params:
        stage="tokens_grpo2",
        fingerprint=FINGERPRINTS["tokens_grpo2"],


use rule heldout as tokens_grpo3 with:
    input:
        unpack(inputs_of("tokens_grpo3")),
    output:
        manifest("tokens_grpo3"),
    log:
        log_of("tokens_grpo3"),
    benchmark:
        benchmark_of("tokens_grpo3")
    threads: PLACEMENT.workers
    resources:
        **resources_of("tokens_grpo3"),
    params:
        stage="tokens_grpo3",
        fingerprint=FINGERPRINTS["tokens_grpo3"],
