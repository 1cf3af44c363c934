"""parquet: schema, number of rows, and the first differing row and column."""

from pathlib import Path

from instella.audit.comparators.documents import text
from instella.audit.comparators.finding import Comparison, Finding
from instella.errors import VerificationError

ROWS = 1024


def compare(left: Path, right: Path) -> Comparison:
    """The first row, from 1, and column that differ."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(left) as one, pq.ParquetFile(right) as other:
            if one.schema_arrow != other.schema_arrow:
                sides = [", ".join(file.schema_arrow.names) for file in (one, other)]
                return Comparison("schemas differ", (Finding("columns", *map(text, sides)),))
            counts = [file.metadata.num_rows for file in (one, other)]
            found = _first(one, other)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise VerificationError(
            f"{left.name}: not parquet: {' '.join(str(error).split())[:200]}"
        ) from None
    rows = f"{counts[0]} | {counts[1]} rows"
    if found is None and counts[0] == counts[1]:
        return Comparison(f"the rows are equal, {rows}; the files are not")
    if found is None:
        return Comparison(f"one has more rows: {rows}")
    return Comparison(f"rows differ; {rows}", (found,))


def _first(left: object, right: object) -> Finding | None:
    start = 0
    pairs = zip(left.iter_batches(ROWS), right.iter_batches(ROWS), strict=False)  # type: ignore[attr-defined]
    for one, other in pairs:
        size = min(len(one), len(other))
        one, other = one.slice(0, size), other.slice(0, size)
        if not one.equals(other):
            rows, others = one.to_pylist(), other.to_pylist()
            for number, (a, b) in enumerate(zip(rows, others, strict=True), start + 1):
                for column in a:
                    if a[column] != b[column] or repr(a[column]) != repr(b[column]):
                        return Finding(f"row {number}, {column}", text(a[column]), text(b[column]))
        start += size
    return None
