-- ARGV: limit, ring-again milliseconds. An episode stays here until it is claimed, so a lost doorbell rings again.
if not goes_on() then return {} end
local t = now()
local limit = tonumber(ARGV[1])
local most = redis.call('HGET', KEYS[1], 'max_running')
if most then
  redis.call('ZREMRANGEBYSCORE', key('rung'), '-inf', t)
  limit = math.min(limit, most - redis.call('ZCARD', key('leases')) - redis.call('ZCARD', key('rung')))
end
if limit <= 0 then return {} end
local ids = redis.call('ZRANGEBYSCORE', key('due'), '-inf', t, 'LIMIT', 0, limit)
for _, id in ipairs(ids) do
  redis.call('ZADD', key('due'), t + ARGV[2], id)
  if most then redis.call('ZADD', key('rung'), t + ARGV[2], id) end
end
return ids
