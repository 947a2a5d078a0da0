"""Import and export of the cupboard: folders of the original program, and files of the beads tracker."""

from dgent.exchange.foreign.beads_import import import_beads
from dgent.exchange.foreign.crumbs_import import import_folder
from dgent.exchange.foreign.export import export_beads, export_folder
from dgent.exchange.foreign.report import Existing, ExportResult, ImportResult

__all__ = [
    "Existing",
    "ExportResult",
    "ImportResult",
    "export_beads",
    "export_folder",
    "import_beads",
    "import_folder",
]
