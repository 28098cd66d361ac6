-- ARGV: episode. One that is collecting has run to its end and is left to end by itself.
local state = get(ARGV[1], 'state')
if not state then return -1 end
if state ~= 'queued' and state ~= 'running' then return 0 end
redis.call('HSET', episode_key(ARGV[1]), 'reason', 'cancelled')
finish(ARGV[1], state, 'cancelled')
return 1
