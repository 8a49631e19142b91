"""Names that the sampler writes and that figures look for. (Apart from those, because the sampler
imports no numpy.)"""

from __future__ import annotations

# Labels of `gpu_info`: a GPU's name within its source, the UUID of its board, the number of its MIG
# instance.
GPU = "gpu"
UUID = "uuid"
MIG = "mig"
# The label of `server_info`: a process that listens (see `processes.identity`).
PROCESS = "process"
# A series of every source: 1 where it answered, 0 where it did not.
UP = "up"
# The sources on the master's machine; others are named by their URLs. POWER is --power-command, OWN
# the sampler itself, LOG the server's log, which is no series.
GPUS = "gpus"
HOST = "host"
SERVER = "server"
POWER = "power"
OWN = "telemetry"
LOG = "log"
