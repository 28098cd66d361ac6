-- ARGV: limit, lease milliseconds. Each item: flat list of the episode's fields, then of its spans.
local t = now()
local out = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('assembly'), '-inf', t, 'LIMIT', 0, ARGV[1])) do
  redis.call('ZADD', key('assembly'), t + ARGV[2], id)
  local f = redis.call('HMGET', episode_key(id), 'task', 'attempt', 'purpose', 'reward', 'rewards', 'calls')
  out[#out + 1] = { id, group_of(id), f, redis.call('HGETALL', spans_key(id, f[2])) }
end
return out
