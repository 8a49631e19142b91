"""Sends the results of every run to Weights & Biases (pip install wandb).

locust -f locustfiles/sharegpt_chat.py,examples/to_wandb.py --headless --host http://127.0.0.1:8080
"""

import wandb

from llama_load import events


@events.llm_report.add_listener
def to_wandb(run_dir, summary, **_):
    with wandb.init(project="llama-load", name=summary["label"] or run_dir.name) as run:
        run.summary["verdict"] = summary["llama_load"]["verdict"]["word"]
        run.log(
            {
                key: value
                for key, value in summary.items()
                if isinstance(value, int | float)
            }
        )
        run.log_artifact(str(run_dir / "requests.parquet"), type="requests")
