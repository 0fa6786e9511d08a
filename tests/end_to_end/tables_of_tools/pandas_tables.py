"""Writes pandas.parquet and pandas.csv, with pandas 2.3 or later: python pandas_tables.py."""

from decimal import Decimal
from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent
FRAME = pd.DataFrame(
    {
        "name": ["a", "b", "c", "d"],
        "label": [0, 1, None, 1],  # becomes a column of floats
        "taken": pd.to_datetime(
            ["2024-03-01 12:30:00", "2024-03-01 00:00:10", None, "1969-12-31 23:59:00"]
        ),
        "stored": pd.to_datetime(["2024-03-01T12:30:00.25+01:00"] * 4),
        "day": pd.to_datetime(["2024-03-01"] * 4).date,
        "dose": [Decimal("12.50"), None, Decimal("0.25"), Decimal("3.00")],
        "box": [[1.0, 2.0, 3.0, 4.0]] * 4,
        "site": pd.Categorical(["x", "y", "x", None]),
        "patient": [{"id": i, "age": 30 + i} for i in range(4)],
    }
)

if __name__ == "__main__":
    FRAME.to_parquet(FOLDER / "pandas.parquet")
    FRAME[["name", "label", "taken"]].to_csv(FOLDER / "pandas.csv", index=False, sep=";")
