"""Puts the pages of the manual into the package when it is built; all else is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithManual(build_py):
    """Copies docs/ to promptguard/data/manual; an editable installation reads docs/ itself."""

    def run(self) -> None:
        """Build the package, then add the manual."""
        super().run()
        if not self.editable_mode:
            self.copy_manual(Path(self.build_lib) / "promptguard" / "data" / "manual")

    def copy_manual(self, target: Path) -> None:
        """Copy the pages, their pictures and their navigation."""
        docs = ROOT / "docs"
        for page in [*docs.rglob("*.md"), *docs.glob("images/*.png")]:
            copy = target / page.relative_to(docs)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, copy)
        shutil.copyfile(ROOT / "mkdocs.yml", target / "mkdocs.yml")


setup(cmdclass={"build_py": BuildWithManual})
