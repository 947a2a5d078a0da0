"""Google's Agent Development Kit on a dgent store: sessions, memory and artifacts.

`pip install 'dgent[adk]'`
"""

from dgent.errors import Unsupported

try:
    import google.adk  # noqa: F401 - asked for here, so that every part may count on it
except ImportError:
    raise Unsupported("google-adk is not installed", hint="pip install 'dgent[adk]'") from None

from dgent.bridges.adk.artifact import DgentArtifactService
from dgent.bridges.adk.forget import forget_user
from dgent.bridges.adk.memory import DgentMemoryService
from dgent.bridges.adk.session import DgentSessionService

__all__ = ["DgentArtifactService", "DgentMemoryService", "DgentSessionService", "forget_user"]
