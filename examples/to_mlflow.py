"""Sends the results of every run to MLflow (pip install mlflow).

locust -f locustfiles/sharegpt_chat.py,examples/to_mlflow.py --headless --host http://127.0.0.1:8080
"""

import mlflow

from llama_load import events


@events.llm_report.add_listener
def to_mlflow(run_dir, summary, **_):
    with mlflow.start_run(run_name=summary["label"] or run_dir.name):
        mlflow.set_tag("verdict", summary["llama_load"]["verdict"]["word"])
        mlflow.log_metrics(
            {
                key: value
                for key, value in summary.items()
                if isinstance(value, int | float)
            }
        )
        mlflow.log_artifacts(str(run_dir))
