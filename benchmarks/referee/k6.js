// Plain k6: it reads whole answers, so that it has no time of a first token, and "waiting" ends with the headers.
import http from "k6/http";
import { Trend } from "k6/metrics";

const e2el = new Trend("referee_e2el", true);
const words = __ENV.REFEREE_PROMPT;
const body = JSON.stringify({
  model: "simulated",
  messages: [{ role: "user", content: words }],
  max_tokens: parseInt(__ENV.REFEREE_TOKENS),
  stream: true,
  stream_options: { include_usage: true },
});

export const options = JSON.parse(__ENV.REFEREE_OPTIONS);

export default function () {
  const request = `${__VU}-${__ITER}`;
  const headers = { "Content-Type": "application/json", "X-Request-Id": request };
  const answer = http.post(`${__ENV.REFEREE_URL}/v1/chat/completions`, body, { headers });
  if (answer.status === 200 && answer.body.includes("[DONE]")) e2el.add(answer.timings.duration, { request });
}
