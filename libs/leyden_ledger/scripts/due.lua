-- ARGV: limit, ring-again milliseconds. An episode stays here until it is claimed, so a lost doorbell rings again.
local t = now()
local ids = redis.call('ZRANGEBYSCORE', key('due'), '-inf', t, 'LIMIT', 0, ARGV[1])
for _, id in ipairs(ids) do redis.call('ZADD', key('due'), t + ARGV[2], id) end
return ids
