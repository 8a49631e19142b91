"""Who sends what when: leases, phases, the dispatcher. Pure: no Locust, no gevent, no network."""
