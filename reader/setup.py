"""Builds recordmill-reader, whose files are never those of recordmill.

    site-packages/recordmill_reader.pth       adds the next folder to the end of `sys.path`
    site-packages/recordmill_reader/
        recordmill/                           the package, for `import recordmill`

Where recordmill is installed as well, its files come first. Either can be uninstalled.
"""

from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

FOLDER = "recordmill_reader"


class BuildWithPath(build_py):
    """Adds the path configuration file to the root of the wheel."""

    def run(self) -> None:
        """Builds the package, and the file beside it."""
        super().run()
        if not self.editable_mode:
            Path(self.build_lib, f"{FOLDER}.pth").write_text(f"{FOLDER}\n", encoding="ascii")


PACKAGES = find_packages(include=["recordmill*"])

setup(
    packages=[f"{FOLDER}.{package}" for package in PACKAGES],
    package_dir={f"{FOLDER}.recordmill": "recordmill"},
    package_data={
        f"{FOLDER}.recordmill": ["py.typed"],
        f"{FOLDER}.recordmill.schemas": ["*.proto", "*.pyi", "presets/*.yaml"],
    },
    cmdclass={"build_py": BuildWithPath},
)
