# The chat model: supervised fine-tuning, then direct preference optimization.


rule sft:
    input:
        unpack(inputs_of("sft")),
    output:
        manifest("sft"),
    log:
        log_of("sft"),
    benchmark:
        benchmark_of("sft")
    conda:
        "../envs/python.yaml"
    threads: PLACEMENT.ranks
    resources:
        **resources_of("sft"),
    params:
        stage="sft",
        fingerprint=FINGERPRINTS["sft"],
    shell:
        "instella stage {params.stage} --log {log:q}"


use rule sft as dpo with:
    input:
        unpack(inputs_of("dpo")),
    output:
        manifest("dpo"),
    log:
        log_of("dpo"),
    benchmark:
        benchmark_of("dpo")
    resources:
        **resources_of("dpo"),
    params:
        stage="dpo",
        fingerprint=FINGERPRINTS["dpo"],
