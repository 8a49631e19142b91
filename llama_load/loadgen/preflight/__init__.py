"""What happens before the first request: query the servers, plan the prompts, check that they
fit."""
