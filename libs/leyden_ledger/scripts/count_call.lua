-- ARGV: episode, attempt, mark of this reply. Returns the call's number, -1 if fenced, -2 if it is one too many.
if not live(ARGV[1], ARGV[2]) then return -1 end
local f = redis.call('HMGET', episode_key(ARGV[1]), 'mark', 'calls')
if f[1] == ARGV[3] then return tonumber(f[2]) end
if tonumber(f[2]) >= tonumber(redis.call('HGET', KEYS[1], 'max_calls')) then return -2 end
redis.call('HSET', episode_key(ARGV[1]), 'mark', ARGV[3])
return redis.call('HINCRBY', episode_key(ARGV[1]), 'calls', 1)
