# The math model: two stages of fine-tuning, then three of GRPO.


rule math_sft1:
    input:
        unpack(inputs_of("math_sft1")),
    output:
        manifest("math_sft1"),
    log:
        log_of("math_sft1"),
    benchmark:
        benchmark_of("math_sft1")
    conda:
        "../envs/python.yaml"
    threads: PLACEMENT.ranks
    resources:
        **resources_of("math_sft1"),
    params:
        stage="math_sft1",
        fingerprint=FINGERPRINTS["math_sft1"],
    shell:
        "instella stage {params.stage} --log {log:q}"


use rule math_sft1 as math_sft2 with:
    input:
        unpack(inputs_of("math_sft2")),
    output:
        manifest("math_sft2"),
    log:
        log_of("math_sft2"),
    benchmark:
        benchmark_of("math_sft2")
    resources:
        **resources_of("math_sft2"),
    params:
        stage="math_sft2",
        fingerprint=FINGERPRINTS["math_sft2"],


rule grpo1:
    input:
        unpack(inputs_of("grpo1")),
    output:
        manifest("grpo1"),
    log:
        log_of("grpo1"),
    benchmark:
        benchmark_of("grpo1")
    conda:
        "../envs/python.yaml"
    threads: PLACEMENT.ranks
    resources:
        **resources_of("grpo1"),
    params:
        stage="grpo1",
        fingerprint=FINGERPRINTS["grpo1"],
    shell:
        "instella stage {params.stage} --log {log:q}"


use rule grpo1 as grpo2 with:
    input:
        unpack(inputs_of("grpo2")),
    output:
        manifest("grpo2"),
    log:
        log_of("grpo2"),
    benchmark:
        benchmark_of("grpo2")
    resources:
        **resources_of("grpo2"),
    params:
        stage="grpo2",
        fingerprint=FINGERPRINTS["grpo2"],


use rule grpo1 as grpo3 with:
    input:
        unpack(inputs_of("grpo3")),
    output:
        manifest("grpo3"),
    log:
        log_of("grpo3"),
    benchmark:
        benchmark_of("grpo3")
    resources:
        **resources_of("grpo3"),
    params:
        stage="grpo3",
        fingerprint=FINGERPRINTS["grpo3"],
