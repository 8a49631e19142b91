"""Vision: every request has an image and a question about it.

locust -f locustfiles/vision.py --headless --host http://127.0.0.1:8080 -u 4 --num-prompts 16
--image-size 1280x720
"""

from locust import task

from llama_load import LlamaUser, Vision


class VisionChat(LlamaUser):
    workload = Vision()

    @task
    def look(self):
        self.vision()
