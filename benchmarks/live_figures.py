"""What the live figures cost the master: CPU time per record, at batches as workers send them, and
per reading of the page.

python -m benchmarks.live_figures [RECORDS] [GAPS]
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from dataclasses import replace

from llama_load.ground.units import NS_PER_S
from llama_load.loadgen.live import LiveFigures
from llama_load.loadgen.live.exposition import exposition
from llama_load.page.live_view import live_view
from llama_load.run_folder.observed.record import to_batch
from tests.make_records import record

RATE_RPS = 2000
BATCH = 100


def main(records: int, gaps: int) -> None:
    made = [
        replace(
            record(n),
            stage=n % 4,
            host=f"http://host-{n % 2}",
            itl_ms=[5.0 + n % 7] * gaps,
        )
        for n in range(BATCH)
    ]
    batch = to_batch(made)
    now = [0]
    tracemalloc.start()
    live = LiveFigures(lambda: now[0])
    sizes = []
    begun = time.process_time()
    for number in range(records // BATCH):
        now[0] = number * BATCH * NS_PER_S // RATE_RPS
        live.add_batch(batch)
        if number % (RATE_RPS // BATCH) == 0:
            live.sample("measuring", {}, {"in_flight": 1.0})
        if number % (records // BATCH // 4) == 0:
            sizes.append(tracemalloc.get_traced_memory()[0] / 1e6)
    traced = time.process_time() - begun
    tracemalloc.stop()
    live = LiveFigures(lambda: now[0])
    begun = time.process_time()
    for number in range(records // BATCH):
        now[0] = number * BATCH * NS_PER_S // RATE_RPS
        live.add_batch(batch)
    each_us = (time.process_time() - begun) / records * 1e6
    single = LiveFigures(lambda: now[0])
    begun = time.process_time()
    for _ in range(100):
        for one in made:
            single.add(one)
    one_us = (time.process_time() - begun) / (100 * BATCH) * 1e6
    begun = time.process_time()
    for _ in range(20):
        live_view(live, ["a", "b", "c", "d"], 0, 0)
    whole_ms = (time.process_time() - begun) / 20 * 1e3
    begun = time.process_time()
    for _ in range(20):
        exposition(live, ["a", "b", "c", "d"], {})
    scrape_ms = (time.process_time() - begun) / 20 * 1e3
    print(
        f"{records} records with {gaps} gaps, simulated {records / RATE_RPS / 60:.0f} minutes at {RATE_RPS}/s"
    )
    print(
        f"from batches    {each_us:6.2f} us a record = {each_us * RATE_RPS / 1e4:.2f} % of a core at {RATE_RPS}/s"
    )
    print(f"one by one      {one_us:6.2f} us a record")
    print(f"whole history   {whole_ms:6.2f} ms a reading; /metrics {scrape_ms:.2f} ms")
    print(
        f"memory in MB    {', '.join(f'{size:.1f}' for size in sizes)} over the run (traced in {traced:.0f} s)"
    )


if __name__ == "__main__":
    main(*[int(word) for word in sys.argv[1:]] or (1_000_000, 50))
