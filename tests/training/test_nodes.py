"""Two nodes with addresses of their own: one is lost, both start again, the bytes are the same.

A node is a network namespace with its end of a cable (a pair of veth devices), a torchrun and
its rank. The folder is shared, as on a cluster. It needs the right to make namespaces, iproute2
and half a minute, so it runs with ``INSTELLA_SOAK=1``; docs/scaling.md has the results.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from stage_toys import digests, write_inputs
from test_sharding import FULL, run_cases

from instella.training.checkpoint import verify
from instella.training.loop import CHECKPOINTS
from instella.training.processes import launch

NODES = """
set -eu
ip link set lo up
ip link add east type veth peer name west
unshare --net sleep 600 &
other=$!
trap 'kill $other' EXIT
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link set west netns $other
ip address add 10.77.0.1/24 dev east
ip link set east up
there() { nsenter --net --target $other "$@"; }
there ip link set lo up
there ip address add 10.77.0.2/24 dev west
there ip link set west up
run() {
    number=$1; shift
    "$@" "$PYTHON" -m torch.distributed.run --nnodes=2 --nproc-per-node=1 --node-rank=$number \\
        --master-addr=10.77.0.1 --master-port=29400 "$SCRIPT"
}
run 1 there &
second=$!
code=0
run 0 env || code=$?
wait $second || true
exit $code
"""
# Run by torchrun. With LOSE set the second node is lost in that update: its torchrun and its
# rank are killed, and what they held open is closed by the kernel.
RANK = """
import os, signal, sys
sys.path[:0] = {path!r}
from pathlib import Path
from instella import numerics
told = {{name: os.environ[name] for name in os.environ if name.startswith("TORCHELASTIC_")}}
numerics.apply_environment("portable-x86")
os.environ.update(told)
from test_sharding import FULL, run_cases
from instella.training.optimizer import AdamW
from instella.training.processes import launch

real, lose = AdamW.update, int(os.environ.get("LOSE", "0"))

def update(self, rate):
    real(self, rate)
    if os.environ["RANK"] == "1" and self.step == lose:
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

AdamW.update = update

def run(group, *arguments):
    if group.rank == 0:
        print(os.environ["GLOO_SOCKET_IFNAME"], flush=True)
    run_cases(group, *arguments)

launch(2, run, Path({inputs!r}), Path({folder!r}), {{"run": ("pretrain", FULL)}})
"""


def run_nodes(folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    private = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "-r"]
    script = {"SCRIPT": str(folder / "rank.py"), "PYTHON": sys.executable}
    return subprocess.run(
        [*private, "bash", "-c", NODES],
        env={**os.environ, **script, **variables},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.skipif(
    not os.environ.get("INSTELLA_SOAK"), reason="namespaces, half a minute: INSTELLA_SOAK=1"
)
def test_a_lost_node_changes_no_byte(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path / "inputs")
    # ranks of one machine, in this process: that they used ``lo`` must not reach the nodes
    launch(2, run_cases, inputs, tmp_path / "near", {"run": ("pretrain", FULL)})
    expected = digests(tmp_path / "near" / "run" / "output")
    values = {"path": sys.path, "inputs": str(inputs), "folder": str(tmp_path)}
    (tmp_path / "rank.py").write_text(RANK.format(**values), encoding="utf-8")
    lost = run_nodes(tmp_path, LOSE="5")
    assert lost.returncode == 1, lost.stderr
    assert "a rank is gone" in lost.stderr
    assert not list((tmp_path / "run" / "output").iterdir())
    left = sorted((tmp_path / "run" / "scratch" / CHECKPOINTS).glob("step-*"))
    # that of step 4 may have been on its way
    assert [verify(path).step for path in left] in ([2], [2, 4])
    again = run_nodes(tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stdout.split() == ["east"]
    assert digests(tmp_path / "run" / "output") == expected
