"""One short module for each kind of stage; each has ``run(job)``."""
