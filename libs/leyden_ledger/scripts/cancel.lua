-- ARGV: episode
local state = get(ARGV[1], 'state')
if not state then return -1 end
if state ~= 'queued' and state ~= 'running' and state ~= 'collecting' then return 0 end
redis.call('HSET', episode_key(ARGV[1]), 'reason', 'cancelled')
redis.call('HDEL', episode_key(ARGV[1]), 'reward', 'rewards', 'output')
finish(ARGV[1], state, 'cancelled')
return 1
