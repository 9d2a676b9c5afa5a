"""Configuration: what can be set, and where it is read from.

`load_config()` looks for `gpuwire.toml` in the working directory and upwards; variables
(`GPUWIRE_REMOTE__FLUSH_THRESHOLD=16`) are stronger than the file, arguments stronger than both.
"""

from gpuwire.config.environment import state_directory, ticket_from_environment
from gpuwire.config.loading import find_config_file, load_config
from gpuwire.config.models import (
    ComputeConfig,
    Config,
    CudaMemoryConfig,
    LoggerConfig,
    LogLevel,
    MemoryConfig,
    PersistentMemory,
    Progress,
    QuicEngine,
    RemoteConfig,
    ServerConfig,
    ServerLoggerConfig,
    StreamingConfig,
)

__all__ = [
    "ComputeConfig",
    "Config",
    "CudaMemoryConfig",
    "LogLevel",
    "LoggerConfig",
    "MemoryConfig",
    "PersistentMemory",
    "Progress",
    "QuicEngine",
    "RemoteConfig",
    "ServerConfig",
    "ServerLoggerConfig",
    "StreamingConfig",
    "find_config_file",
    "load_config",
    "state_directory",
    "ticket_from_environment",
]
