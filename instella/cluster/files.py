"""Whether a folder's file system keeps locks between machines, as its mount options tell."""

import os
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
# Seen by one machine alone.
LOCAL_TYPES = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs")
# Options with which a lock acts on one machine alone: nfs(5), Lustre's mount.lustre(8).
LOCAL_LOCKS = ("nolock", "local_lock=all", "local_lock=flock", "localflock", "noflock")


def mount_of(folder: Path, mounts: str) -> tuple[str, list[str]]:
    """Type and options of the mount that holds ``folder``.

    Args:
        folder: absolute.
        mounts: text of ``/proc/self/mounts``.
    """
    best, found = "", ("unknown", [""])
    for line in mounts.splitlines():
        _, place, kind, options, *_ = line.split(" ")
        place = place.encode("ascii", "replace").decode("unicode_escape")
        inside = str(folder) == place or str(folder).startswith(f"{place.rstrip('/')}/")
        if inside and len(place) >= len(best):
            best, found = place, (kind, options.split(","))
    return found


def doubts(folder: Path, mounts: str | None = None) -> list[str]:
    """What speaks against running the ranks and jobs of one store from several machines."""
    text = MOUNTS.read_text(encoding="utf-8") if mounts is None else mounts
    kind, options = mount_of(Path(os.path.realpath(folder)), text)
    if kind in LOCAL_TYPES:
        return [f"{folder} lies on {kind}, which other machines do not see; choose a folder of the "
                "shared file system"]  # fmt: skip
    bad = [option for option in options if option in LOCAL_LOCKS]
    if bad:
        return [f"{folder} lies on {kind} mounted with {bad[0]}: locks hold on one machine only, so "
                "start one run of this store at a time"]  # fmt: skip
    return []
