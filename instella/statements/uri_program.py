"""Signs with securesystemslib, in the environment that has it; knows nothing of the package.

Reads ``{"uri", "public", "messages": [base64]}`` on standard input and writes the signatures as
a JSON list of hex. An error is its last line on standard error.
"""

import base64
import json
import sys


def main() -> None:
    """Sign every message with the key that the URI names."""
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from securesystemslib.signer import Signer, SSlibKey

    task = json.load(sys.stdin)
    public = SSlibKey.from_crypto(load_pem_public_key(task["public"].encode("ascii")))
    signer = Signer.from_priv_key_uri(task["uri"], public)
    messages = [base64.b64decode(text) for text in task["messages"]]
    json.dump([signer.sign(message).signature for message in messages], sys.stdout)


if __name__ == "__main__":
    main()
