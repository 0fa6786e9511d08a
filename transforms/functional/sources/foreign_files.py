"""Names files that are not tables, with a remedy for each, by their first bytes or suffix."""

from __future__ import annotations

from recordmill.transforms.functional.images.sniffing import sniff

_EXCEL = "an Excel workbook. Save the sheet as CSV (UTF-8)."
_ARCHIVE = "an archive. Unpack it, and name the table or the folder of images."
_ZIP_SUFFIXES = {
    ".xlsx": _EXCEL,
    ".xlsm": _EXCEL,
    ".ods": "an OpenDocument spreadsheet. Save the sheet as CSV (UTF-8).",
    ".npz": "a NumPy archive. Write its arrays as Parquet.",
    ".docx": "a Word document. Save its table as CSV (UTF-8).",
}
_SIGNATURES = {
    b"\xd0\xcf\x11\xe0": _EXCEL,
    b"SQLite format 3": "an SQLite database. Export the table as CSV or Parquet.",
    b"\x89HDF": "an HDF5 file. Write its tables as Parquet.",
    b"\x93NUMPY": "a NumPy array. Write it as Parquet.",
    b"Obj\x01": "an Avro file. Write it as Parquet.",
    b"ORC": "an ORC file. Write it as Parquet.",
    b"%PDF": "a PDF document. Save its table as CSV (UTF-8).",
    b"7z\xbc\xaf": _ARCHIVE,
    b"Rar!": _ARCHIVE,
    b"BZh": "compressed with bzip2. Decompress it, or use gzip.",
    b"\xfd7zXZ": "compressed with xz. Decompress it, or use gzip.",
    b"\x28\xb5\x2f\xfd": "compressed with zstd. Decompress it, or use gzip.",
    b"\x80\x02": "a Python pickle. Write its table as Parquet.",
    b"\x80\x03": "a Python pickle. Write its table as Parquet.",
    b"\x80\x04": "a Python pickle. Write its table as Parquet.",
    b"\x80\x05": "a Python pickle. Write its table as Parquet.",
}
_TEXT_SUFFIXES = (".txt", ".text", ".dat", ".data", ".lst", ".list")


def describe(path: str, head: bytes) -> str:
    r"""Returns the description of a file and a remedy; "" if it is unknown.

    `head` is its first bytes.

    >>> describe("labels.xlsx", b"PK\x03\x04")
    'an Excel workbook. Save the sheet as CSV (UTF-8).'
    """
    name = path.lower()
    if head.startswith(b"PK\x03\x04"):
        suffixes = (text for suffix, text in _ZIP_SUFFIXES.items() if name.endswith(suffix))
        return next(suffixes, _ARCHIVE)
    if found := next((text for mark, text in _SIGNATURES.items() if head.startswith(mark)), ""):
        return found
    if sniff(head) is not None:
        return "an image. Name its folder, or a table with the paths of images."
    if name.endswith(".xml"):
        return "an XML file. For Pascal VOC, name the folder with Annotations/ and JPEGImages/."
    if name.endswith(_TEXT_SUFFIXES):
        return (
            "a text file. Set --input_format csv, with --delimiter and --header if it has another "
            "delimiter or no header."
        )
    return ""
