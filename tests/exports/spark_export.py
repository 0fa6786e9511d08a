"""Writes tables of Delta Lake and Apache Iceberg with Spark, in an environment of its own.

Prints the rows that Spark selects from each version of each table, without empty values.
"""

# ruff: noqa: S608 - the names in the queries are those of this file

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession

jars, folder = map(Path, sys.argv[1:])
EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)
SETTINGS = {
    "spark.jars": ",".join(map(str, sorted(jars.glob("*.jar")))),
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.extensions": ",".join(EXTENSIONS),
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.warehouse.dir": f"{folder}/warehouse",
    "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.ice.type": "hadoop",
    "spark.sql.catalog.ice.warehouse": f"{folder}/iceberg",
}
COLUMNS = "id STRING, label INT, site STRING, size STRUCT<width: INT, unit: STRING>, day DATE"
BIRDS = """
    SELECT lpad(id, 3, '0'), CAST(id % 3 AS INT), element_at(array('A/B ü%20', 'c=d', 'e'),
    CAST(id % 3 + 1 AS INT)), named_struct('width', CAST(id AS INT), 'unit', 'cm'),
    date'2024-03-01' FROM range(30)
"""

builder = SparkSession.builder.master("local[1]")
for name, value in SETTINGS.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()


def create(table: str, kind: str, properties: str) -> None:
    """Creates a table of 30 rows, and deletes three of them."""
    spark.sql(
        f"CREATE TABLE {table} ({COLUMNS}) USING {kind} PARTITIONED BY (site, day) "
        f"TBLPROPERTIES ({properties})"
    )
    spark.sql(f"INSERT INTO {table} {BIRDS}")
    spark.sql(f"DELETE FROM {table} WHERE id IN ('003', '004', '017')")


def change_columns(table: str) -> None:
    """Renames a column, and replaces one by another one of its name."""
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN label TO species")
    spark.sql(f"ALTER TABLE {table} DROP COLUMN size")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN size STRUCT<width: INT>")


def selected(query: str) -> list[dict[str, Any]]:
    """Returns the rows that a query selects; fields of structs are columns with a dot."""
    return [values(row) for row in spark.sql(f"{query} ORDER BY id").collect()]


def values(row: Row, prefix: str = "") -> dict[str, Any]:
    """Returns the values of a row that are not empty."""
    found: dict[str, Any] = {}
    for name, value in row.asDict().items():
        if isinstance(value, Row):
            found |= values(value, f"{prefix}{name}.")
        elif value is not None:
            found[prefix + name] = value
    return found


def delta() -> dict[str, Any]:
    """Returns the rows of each version of a Delta table with deletion vectors."""
    table = f"delta.`{folder}/delta`"
    vectors = "'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name'"
    create(table, "delta", vectors)
    spark.sql(f"UPDATE {table} SET label = 9 WHERE id = '005'")
    change_columns(table)
    spark.sql(
        f"MERGE INTO {table} t USING (SELECT '006' id, 7 species) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET species = s.species"
    )
    newest = spark.sql(f"DESCRIBE HISTORY {table}").count() - 1
    query = f"SELECT * FROM {table} VERSION AS OF"
    return {str(version): selected(f"{query} {version}") for version in range(1, newest + 1)}


def iceberg(format_version: int) -> dict[str, Any]:
    """Returns the rows of each snapshot of an Iceberg table, and its current metadata file."""
    name = f"v{format_version}"
    table = f"ice.db.{name}"
    modes = (f"'write.{command}.mode' = 'merge-on-read'" for command in ("delete", "update"))
    create(table, "iceberg", f"'format-version' = '{format_version}', {', '.join(modes)}")
    change_columns(table)
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN species TYPE BIGINT")
    spark.sql(f"UPDATE {table} SET species = 9 WHERE id IN ('005', '007')")
    spark.sql(f"DELETE FROM {table} WHERE id = '006'")
    snapshots = spark.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at")
    query = f"SELECT * FROM {table} VERSION AS OF"
    rows = {str(id_): selected(f"{query} {id_}") for (id_,) in snapshots.collect()}
    return {"metadata": metadata_of(name), "rows": rows}


def metadata_of(name: str) -> str:
    """Returns the address of the current metadata file of an Iceberg table."""
    metadata = folder / "iceberg" / "db" / name / "metadata"
    current = (metadata / "version-hint.text").read_text().strip()
    return f"file://{metadata}/v{current}.metadata.json"


def equality() -> dict[str, Any]:
    """Returns an Iceberg table with equality deletes, as Flink writes them, and rewritten."""
    table = "ice.db.equality"
    spark.sql(f"CREATE TABLE {table} (id STRING, n INT) USING iceberg")
    spark.sql(f"INSERT INTO {table} VALUES ('1', 1), ('2', 2), ('3', 3)")
    before = metadata_of("equality")
    delete_equal(table, "2")
    spark.sql(f"INSERT INTO {table} VALUES ('2', 7)")
    with_deletes, rows = metadata_of("equality"), selected(f"SELECT * FROM {table}")
    options = "map('delete-file-threshold', '1', 'remove-dangling-deletes', 'true')"
    call = f"CALL ice.system.rewrite_data_files(table => 'db.equality', options => {options})"
    spark.sql(call)
    metadata = {"before": before, "deleted": with_deletes, "rewritten": metadata_of("equality")}
    return {"metadata": metadata, "rows": rows}


def delete_equal(name: str, key: str) -> None:
    """Deletes the row with a key from an Iceberg table by its value."""
    jvm, gateway = spark._jvm, spark.sparkContext._gateway  # type: ignore[attr-defined]
    iceberg = jvm.org.apache.iceberg
    table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    columns, ids = gateway.new_array(jvm.String, 1), gateway.new_array(jvm.int, 1)
    columns[0], ids[0] = "id", table.schema().findField("id").fieldId()
    schema = table.schema().select(columns)
    factory = iceberg.data.GenericAppenderFactory(table.schema(), table.spec(), ids, schema, None)
    output = table.io().newOutputFile(f"{table.location()}/data/equal.parquet")
    encrypted = iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(output)
    writer = factory.newEqDeleteWriter(encrypted, iceberg.FileFormat.PARQUET, None)
    record = iceberg.data.GenericRecord.create(schema)
    record.setField("id", key)
    writer.write(record)
    writer.close()
    table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
    spark.sql(f"REFRESH TABLE {name}")


def compacted(table: str, kind: str, compaction: str) -> None:
    """Writes a table of four rows, one by one, and compacts it after two and three of them."""
    spark.sql(f"CREATE TABLE {table} (id STRING) USING {kind}")
    for number in range(4):
        spark.sql(f"INSERT INTO {table} VALUES ('{number}')")
        if number in (1, 2):
            spark.sql(compaction)


compacted(f"delta.`{folder}/compacted`", "delta", f"OPTIMIZE delta.`{folder}/compacted`")
rewrite = "options => map('min-input-files', '1')"
call = f"CALL ice.system.rewrite_data_files(table => 'db.compacted', {rewrite})"
compacted("ice.db.compacted", "iceberg", call)
tables = {"delta": delta(), "v2": iceberg(2), "v3": iceberg(3), "equality": equality()}
tables["compacted"] = {
    "metadata": metadata_of("compacted"),
    "rows": selected("SELECT * FROM ice.db.compacted"),
    "first": spark.sql(
        "SELECT snapshot_id FROM ice.db.compacted.snapshots ORDER BY committed_at"
    ).collect()[2][0],
}
print(json.dumps(tables, default=str))
