-- ARGV: grace milliseconds for spans, limit. Ends attempts whose lease ran out or whose spans never came, and whatever
-- is left of a cancelled run.
local t = now()
local n = 0
if redis.call('HGET', KEYS[1], 'state') == 'cancelled' then
  for _, state in ipairs({ 'queued', 'running' }) do
    for _, id in ipairs(redis.call('ZRANGE', key('state:' .. state), 0, ARGV[2] - 1)) do
      redis.call('HSET', episode_key(id), 'reason', 'cancelled')
      finish(id, state, 'cancelled')
      n = n + 1
    end
  end
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('leases'), '-inf', t, 'LIMIT', 0, ARGV[2])) do
  fail(id, 'running', 'worker_lost', 'the lease ran out: the worker died or was cut off')
  n = n + 1
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('collecting'), '-inf', t - ARGV[1], 'LIMIT', 0, ARGV[2])) do
  -- One that waits for assembly is complete: it is late, not lost.
  if not redis.call('ZSCORE', key('assembly'), id) then
    fail(id, 'collecting', 'incomplete_trace', 'the span of a counted call never arrived')
    n = n + 1
  end
end
local state = redis.call('HGET', KEYS[1], 'state')
return { n, (state == 'finished' or state == 'cancelled') and 1 or 0 }
