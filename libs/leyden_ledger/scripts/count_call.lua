-- ARGV: episode, attempt, mark of this reply, its samples: each is a call. All count, or none. Returns the first one's
-- number, -1 if fenced, -2 if they are too many.
if not live(ARGV[1], ARGV[2]) then return -1 end
local n = tonumber(ARGV[4])
local f = redis.call('HMGET', episode_key(ARGV[1]), 'mark', 'calls')
if f[1] == ARGV[3] then return tonumber(f[2]) - n + 1 end
if tonumber(f[2]) + n > tonumber(redis.call('HGET', KEYS[1], 'max_calls')) then return -2 end
redis.call('HSET', episode_key(ARGV[1]), 'mark', ARGV[3])
return redis.call('HINCRBY', episode_key(ARGV[1]), 'calls', n) - n + 1
