"""Import and export the files of other programs: of the cupboard's ancestor, beads, and the memory server."""

from dgent.exchange.foreign.beads_import import import_beads
from dgent.exchange.foreign.crumbs_import import import_folder
from dgent.exchange.foreign.export import export_beads, export_folder
from dgent.exchange.foreign.memory_graph import ExistingEntity, export_graph, import_graph
from dgent.exchange.foreign.report import Existing, ExportResult, ImportResult

__all__ = [
    "Existing",
    "ExistingEntity",
    "ExportResult",
    "ImportResult",
    "export_beads",
    "export_folder",
    "export_graph",
    "import_beads",
    "import_folder",
    "import_graph",
]
