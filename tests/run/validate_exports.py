"""Runs in the environment of requirements/environments/exports.lock: public validators, offline.

    python validate_exports.py crate FOLDER [SEVERITY]
    python validate_exports.py bom FILE...

Prints what is wrong, a line each; the status is 1 then.
"""

import io
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

CONTEXT = "https://w3id.org/ro/crate/1.1/context"


def crate(folder: str, severity: str = "REQUIRED") -> list[str]:
    """Issues that the RO-Crate validator has with a folder, for Provenance Run Crate 0.5."""
    import requests
    from rocrate_validator import services
    from rocrate_validator.models import Severity, ValidationSettings

    # Not imported: the package's own needs are not installed.
    file = distribution("rocrate").locate_file("rocrate/data/ro-crate.jsonld")
    known = Path(str(file)).read_bytes()

    class Packaged(requests.adapters.BaseAdapter):
        """Answers with the context of the package, and to nothing else."""

        def send(self, request: Any, **_: Any) -> Any:
            if request.url != CONTEXT:
                raise requests.ConnectionError(f"{request.url} is not to be asked for")
            response = requests.Response()
            response.status_code = 200
            response.url = CONTEXT
            response.request = request
            response.headers["Content-Type"] = "application/ld+json"
            response.raw = io.BytesIO(known)
            return response

        def close(self) -> None:
            pass

    requests.Session.get_adapter = lambda self, url: Packaged()
    settings = ValidationSettings(
        rocrate_uri=Path(folder),
        profile_identifier="provenance-run-crate",
        requirement_severity=Severity[severity],
        enable_profile_inheritance=True,
        no_cache=True,
    )
    result = services.validate(settings)
    if not result.executed_checks:
        return ["no check was made"]
    return [
        f"{issue.check.identifier}: {issue.severity.name}: {issue.message}"
        for issue in result.get_issues(Severity[severity])
    ]


def bom(*paths: str) -> list[str]:
    """Errors against the strict JSON schema of CycloneDX 1.6."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    validator = JsonStrictValidator(SchemaVersion.V1_6)
    found = [(path, validator.validate_str(Path(path).read_text("utf-8"))) for path in paths]
    return [f"{path}: {error!r}"[:2000] for path, error in found if error is not None]


if __name__ == "__main__":
    issues = {"crate": crate, "bom": bom}[sys.argv[1]](*sys.argv[2:])
    print(*issues, sep="\n")
    sys.exit(1 if issues else 0)
