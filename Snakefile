# The recipe as a Snakemake workflow. `config.yaml` says which recipe runs and where;
# every stage is one call of the `instella` command line.
configfile: "config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/pretrain.smk"
include: "workflow/rules/posttrain.smk"
include: "workflow/rules/math.smk"
include: "workflow/rules/evaluate.smk"


report: "workflow/report/workflow.rst"


localrules:
    all,
    source,
    page,
    results,
    root,
    table,


rule all:
    default_target: True
    input:
        # Every stage, since Snakemake leaves a lost file alone when nothing asks for it.
        [manifest(stage) for stage in GRAPH],
        f"{RESULTS}/table.md",
        f"{RESULTS}/root",
        f"{RESULTS}/report.html",


onstart:
    require_rights()
    watch_jobs()


onsuccess:
    print(closing_words())
