-- ARGV: episode, attempt. Its trajectory is stored.
local id = ARGV[1]
local f = redis.call('HMGET', episode_key(id), 'state', 'attempt', 'purpose', 'reward', 'version')
if f[2] ~= ARGV[2] or f[1] ~= 'collecting' then return 0 end
local series = f[3]
if series == 'eval' then series = 'eval:' .. (f[5] or '0') end
redis.call('HINCRBYFLOAT', key('rewards'), series .. ':sum', f[4])
redis.call('HINCRBY', key('rewards'), series .. ':count', 1)
redis.call('HDEL', episode_key(id), 'reason', 'message')
finish(id, 'collecting', 'succeeded')
return 1
