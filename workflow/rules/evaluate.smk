# Measuring every checkpoint, the table of results, and the root hash of the whole run.


rule baseline:
    input:
        unpack(inputs_of("baseline")),
    output:
        manifest("baseline"),
    log:
        log_of("baseline"),
    benchmark:
        benchmark_of("baseline")
    conda:
        "../envs/python.yaml"
    threads: 1
    resources:
        **resources_of("baseline"),
    params:
        fingerprint=FINGERPRINTS["baseline"],
    shell:
        "instella stage baseline --log {log:q}"


rule evaluate:
    input:
        unpack(inputs_of("evaluate_{checkpoint}")),
    output:
        manifest("evaluate_{checkpoint}"),
    log:
        log_of("evaluate_{checkpoint}"),
    benchmark:
        benchmark_of("evaluate_{checkpoint}")
    conda:
        "../envs/python.yaml"
    threads: 1
    resources:
        **resources_of("evaluate_{checkpoint}"),
    params:
        fingerprint=fingerprint_of("evaluate_{checkpoint}"),
    shell:
        "instella stage evaluate_{wildcards.checkpoint} --log {log:q}"


rule results:
    input:
        unpack(inputs_of("results")),
    output:
        manifest("results"),
    log:
        log_of("results"),
    benchmark:
        benchmark_of("results")
    conda:
        "../envs/python.yaml"
    threads: 1
    resources:
        **resources_of("results"),
    params:
        fingerprint=FINGERPRINTS["results"],
    shell:
        "instella stage results --log {log:q}"


rule table:
    input:
        manifest("results"),
    output:
        report(
            f"{RESULTS}/table.md",
            caption="../report/table.rst",
            category="Results",
        ),
    log:
        log_of("table"),
    conda:
        "../envs/python.yaml"
    params:
        table=f"{RESULTS}/results/table.md",
    shell:
        "cp {params.table:q} {output:q} 2> {log:q}"


rule root:
    input:
        manifest("results"),
    output:
        report(
            f"{RESULTS}/root",
            caption="../report/root.rst",
            category="Results",
        ),
    log:
        log_of("root"),
    conda:
        "../envs/python.yaml"
    shell:
        "instella root > {output:q} 2> {log:q}"


rule page:
    input:
        manifest("results"),
    output:
        report(
            f"{RESULTS}/report.html",
            caption="../report/page.rst",
            category="Results",
        ),
    log:
        log_of("page"),
    conda:
        "../envs/python.yaml"
    shell:
        "instella report --output {output:q} > {log:q} 2>&1"
