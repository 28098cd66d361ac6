-- ARGV: episode, attempt
local f = redis.call('HMGET', episode_key(ARGV[1]), 'state', 'attempt', 'calls', 'version', 'purpose')
if not f[1] then return { 'unknown' } end
if f[1] ~= 'running' or f[2] ~= ARGV[2] then return { 'fenced' } end
if tonumber(f[3]) >= tonumber(redis.call('HGET', KEYS[1], 'max_calls')) then return { 'too_many' } end
return { 'ok', f[4] or '', f[5], f[5] == 'eval' and card(group_of(ARGV[1])).version or '' }
