"""Builds the tree of a YAML file from the parser's events.

An open list or mapping lies on a stack of our own, so nesting costs no recursion. An
alias is the node it names, not a copy, and counts with the size of what it stands for:
a few lines of aliases that would expand to gigabytes are refused while they are read.
Refused too: tags, a second document, a key that stands twice in one mapping.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import yaml

from instella.errors import BadUse
from instella.recipe.nodes import Entries, Items, Node, Scalar, bad_line, shown

MAX_DEPTH = 40
MAX_NODES = 100_000
MERGE = "<<"


@dataclass
class _Frame:
    """A node under construction; ``size`` and ``depth`` count what aliases stand for."""

    node: Node
    anchor: str | None
    size: int = 1
    depth: int = 1
    key: Scalar | None = None
    merged: list[Entries] = field(default_factory=list)


class TreeBuilder:
    """``build`` turns the events of one file into its root node."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._root: Node | None = None
        self._open: list[_Frame] = []
        self._anchors: dict[str, _Frame] = {}

    def build(self, events: Iterable[yaml.Event]) -> Node | None:
        """The root, or None when there is no document.

        Raises:
            BadUse: with the line of what is refused.
        """
        for event in events:
            line = event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent):
                self._start_document(event, line)
            elif isinstance(event, yaml.AliasEvent):
                self._add(self._anchored(event.anchor, line), line)
            elif isinstance(event, yaml.NodeEvent):
                self._start_node(event, line)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._finish(self._open.pop())
        return self._root

    def _start_document(self, event: yaml.DocumentStartEvent, line: int) -> None:
        if self._root is not None:
            raise bad_line(self._file, line, "a second document begins", "keep one in a file")
        if event.tags:
            raise bad_line(self._file, line, "%TAG is not supported", "remove it")

    def _anchored(self, name: str, line: int) -> _Frame:
        if name not in self._anchors:
            what = f"the alias *{name} has no finished anchor before it"
            raise bad_line(self._file, line, what, f"write &{name} at an earlier value")
        return self._anchors[name]

    def _start_node(self, event: yaml.NodeEvent, line: int) -> None:
        if event.tag is not None:
            what = f"the tag {shown(event.tag)} is not supported"
            raise bad_line(self._file, line, what, "remove it; write a plain value")
        if isinstance(event, yaml.ScalarEvent):
            plain = event.style in (None, "")
            self._finish(_Frame(Scalar(line, event.value, plain), event.anchor))
            return
        is_list = isinstance(event, yaml.SequenceStartEvent)
        self._open.append(_Frame(Items(line) if is_list else Entries(line), event.anchor))
        if len(self._open) > MAX_DEPTH:
            raise self._too_deep(line)

    def _finish(self, frame: _Frame) -> None:
        if isinstance(frame.node, Entries):
            for other in frame.merged:
                _merge(frame.node, other)
        if frame.anchor is not None:
            self._anchors[frame.anchor] = frame
        self._add(frame, frame.node.line)

    def _add(self, child: _Frame, line: int) -> None:
        if not self._open:
            self._root = child.node
            return
        parent = self._open[-1]
        if isinstance(parent.node, Entries) and parent.key is None:
            parent.key = self._key(parent.node, child.node)
            return
        parent.size += child.size
        parent.depth = max(parent.depth, child.depth + 1)
        if parent.size > MAX_NODES:
            what = f"more than {MAX_NODES} values, aliases counted in full"
            raise bad_line(self._file, line, what, "write fewer; settings need about a thousand")
        if len(self._open) + child.depth > MAX_DEPTH:
            raise self._too_deep(line)
        if isinstance(parent.node, Items):
            parent.node.items.append(child.node)
        elif isinstance(parent.node, Entries) and parent.key is not None:
            self._add_entry(parent, parent.node, parent.key, child.node)
            parent.key = None

    def _add_entry(self, parent: _Frame, node: Entries, key: Scalar, value: Node) -> None:
        if not (key.plain and key.text == MERGE):
            node.entries[key.text] = value
            node.lines[key.text] = key.line
            return
        others = value.items if isinstance(value, Items) else [value]
        for other in others:
            if not isinstance(other, Entries):
                cure = "write <<: *name, where &name marks a mapping"
                raise bad_line(self._file, key.line, "<< does not merge a mapping", cure)
            parent.merged.append(other)

    def _key(self, parent: Entries, node: Node) -> Scalar:
        if not isinstance(node, Scalar):
            raise bad_line(self._file, node.line, "a key is not text", "write 'key: value'")
        if node.text in parent.entries:
            first = parent.lines[node.text]
            what = f"the key {shown(node.text)} stands twice (first in line {first})"
            raise bad_line(self._file, node.line, what, "remove one")
        return node

    def _too_deep(self, line: int) -> BadUse:
        what = f"nested deeper than {MAX_DEPTH} levels"
        return bad_line(self._file, line, what, "flatten it; settings need no more than ten")


def _merge(node: Entries, other: Entries) -> None:
    """What ``node`` does not say itself, it takes from ``other``."""
    for key, value in other.entries.items():
        if key not in node.entries:
            node.entries[key] = value
            node.lines[key] = other.lines[key]
