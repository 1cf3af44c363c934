"""Signing with a key that a URI names: a KMS, a hardware token, a vault.

securesystemslib knows the URIs. It lives in an environment of its own (``./kit setup
signing``), so it is called as a program there (``uri_program.py``), once for all messages.
"""

import base64
import subprocess
from collections.abc import Sequence
from pathlib import Path

from instella.artifacts.identity import PACKAGE_FOLDER
from instella.canonical import json_bytes, parse_json
from instella.errors import BadUse, KitError
from instella.statements import uri_program
from instella.statements.keys import PublicKey, Signer, lowered

PYTHON = PACKAGE_FOLDER.parent / ".venvs" / "signing" / "bin" / "python"


def remote_signer(uri: str, public: PublicKey, python: Path = PYTHON) -> Signer:
    """A signer behind a URI.

    Args:
        uri: as securesystemslib has it, for example ``awskms:KEY`` or ``hsm:2``.
        public: its public key; each signature is verified with it.
        python: of an environment with securesystemslib.

    Raises:
        BadUse: there is no such environment.
    """
    if not python.is_file():
        raise BadUse(f"{uri}: needs securesystemslib: ./kit setup signing")

    def sign(messages: Sequence[bytes]) -> list[bytes]:
        task = {
            "uri": uri,
            "public": public.pem.decode("ascii"),
            "messages": [base64.b64encode(message).decode("ascii") for message in messages],
        }
        done = subprocess.run(
            [python, "-I", "-X", "utf8", uri_program.__file__],
            input=json_bytes(task), capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise KitError(f"{uri}: signs nothing: {lines[-1] if lines else 'no reason given'}")
        found = parse_json(done.stdout, uri)
        signatures = [lowered(bytes.fromhex(text)) for text in found]
        if len(signatures) != len(messages) or not all(
            map(public.is_signature, messages, signatures)
        ):
            raise BadUse(f"{uri}: its signatures are not those of the public key given")
        return signatures

    return Signer(public, sign)
