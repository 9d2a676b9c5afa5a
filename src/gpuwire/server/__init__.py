"""The front: the network process of a server.

It listens, admits, keeps sessions, and moves frames and tensor bytes between clients and the
device hosts that it starts and watches. It decodes no task and touches no GPU.
"""

from gpuwire.server.admission import AdmissionRequest, Authorizer, Grant
from gpuwire.server.front import Server
from gpuwire.server.running import run
from gpuwire.server.tokens import TokenLimits, TokenRecord, TokenStore

__all__ = [
    "AdmissionRequest",
    "Authorizer",
    "Grant",
    "Server",
    "TokenLimits",
    "TokenRecord",
    "TokenStore",
    "run",
]
