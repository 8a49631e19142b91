"""Vision: every request has an image and a question about it.

llama-load run http://127.0.0.1:8080 -f vision -u 4 --num-prompts 16
--image-size 1280x720
"""

from locust import task

from llama_load import LlamaUser, Vision


class VisionChat(LlamaUser):
    workload = Vision()

    @task
    def look(self):
        self.vision()
