"""CPU, memory and network of this machine, and of this process."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil

from llama_load.run_folder.observed.telemetry_names import HOST, OWN
from llama_load.telemetry.source import Source, Value


class Host(Source):
    """This machine."""

    name = HOST

    def sample(self) -> Iterator[Value]:
        """Busy CPU seconds since boot, memory, and network traffic.

        The CPU seconds are of all cores; the traffic is in bytes, of all interfaces but loopback.
        """
        times = psutil.cpu_times()
        # guest and guest_nice are contained in user and nice
        guests_s = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        idle_s = times.idle + getattr(times, "iowait", 0.0)
        yield Value("host_cpu_seconds_total", sum(times) - guests_s - idle_s)
        yield Value("host_cpus", float(psutil.cpu_count() or 0))
        memory = psutil.virtual_memory()
        yield Value("host_memory_used_bytes", float(memory.total - memory.available))
        yield Value("host_memory_total_bytes", float(memory.total))

        received = 0
        sent = 0
        for name, counters in psutil.net_io_counters(pernic=True).items():
            if not name.startswith("lo"):
                received += counters.bytes_recv
                sent += counters.bytes_sent
        yield Value("host_network_received_bytes_total", float(received))
        yield Value("host_network_sent_bytes_total", float(sent))


class Own(Source):
    """The sampler's own process."""

    name = OWN

    def sample(self) -> Iterator[Value]:
        """Its CPU seconds."""
        yield Value("process_cpu_seconds_total", time.process_time())
