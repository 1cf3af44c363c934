# Pretraining: stage 1, stage 2 from several seeds, and the mean of their weights.


rule pretrain_stage1:
    input:
        unpack(inputs_of("pretrain_stage1")),
    output:
        manifest("pretrain_stage1"),
    log:
        log_of("pretrain_stage1"),
    benchmark:
        benchmark_of("pretrain_stage1")
    conda:
        "../envs/python.yaml"
    threads: PLACEMENT.ranks
    resources:
        **resources_of("pretrain_stage1"),
    params:
        fingerprint=FINGERPRINTS["pretrain_stage1"],
    shell:
        "instella stage pretrain_stage1 --log {log:q}"


rule pretrain_stage2_seed:
    input:
        unpack(inputs_of("pretrain_stage2_seed{seed}")),
    output:
        manifest("pretrain_stage2_seed{seed}"),
    log:
        log_of("pretrain_stage2_seed{seed}"),
    benchmark:
        benchmark_of("pretrain_stage2_seed{seed}")
    conda:
        "../envs/python.yaml"
    threads: PLACEMENT.ranks
    resources:
        **resources_of("pretrain_stage2_seed{seed}"),
    params:
        fingerprint=fingerprint_of("pretrain_stage2_seed{seed}"),
    shell:
        "instella stage pretrain_stage2_seed{wildcards.seed} --log {log:q}"


rule pretrain_stage2:
    input:
        unpack(inputs_of("pretrain_stage2")),
    output:
        manifest("pretrain_stage2"),
    log:
        log_of("pretrain_stage2"),
    benchmark:
        benchmark_of("pretrain_stage2")
    conda:
        "../envs/python.yaml"
    threads: 1
    resources:
        **resources_of("pretrain_stage2"),
    params:
        fingerprint=FINGERPRINTS["pretrain_stage2"],
    shell:
        "instella stage pretrain_stage2 --log {log:q}"
