"""An attacker that searches: strangers' bytes at each listener, as they are not thought of.

    python -m tests.search.attacker --seconds 60 --seed 7
    python -m tests.search.attacker --planted

Each case is made of a grammar (`grammar`): which fields, in which order, how large, what fills them,
in which coding the same value stands, and in which pieces it comes. It goes to the listener's own
code in this process (`targets`): the page, its port of metrics, the exporter, the recorder, what
records, the master, the simulated server, the servers of truth, what pushes, and images. Four things
are wrong at any of them, whatever the answer says (`oracles`): CPU time above a fixed part for each
byte, memory above that, a descriptor that stays open, and an error that is no sentence. Beside these
each target knows what must not happen there: a stranger is let in, a key or cookie goes on, a request
is read otherwise than another program reads it, other clients wait.

`--planted` undoes ten mends, one at a time, and sends the case that finds each (`holes`). These are
the first from seed 1 on: a header that is two after 52 cases, cookies of others after 37, patterns
of keys 151, names twice 170, requests taken together 219, clients that read nothing 230, heads
without a limit 420, quadratic cookies 552, other codings 943, names of a network 12,548 (four
minutes). At 60 cases a second a minute of it is 3,500 cases.
"""

import os

# The recorder runs in threads here, which gevent would put into one.
os.environ["LOCUST_SKIP_MONKEY_PATCH"] = "1"
