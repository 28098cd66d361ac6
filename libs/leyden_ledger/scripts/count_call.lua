-- ARGV: episode, attempt, mark of this reply, its samples: each is a call. All count, or none. Returns the first one's
-- number, -1 if fenced, -2 if they are too many.
-- Whoever loses our answer asks again with the same mark, and so may all who shared its connection: as many marks are
-- kept as replies of one episode leave at the same moment.
local KEPT = 32
if not live(ARGV[1], ARGV[2]) then return -1 end
local n = tonumber(ARGV[4])
local f = redis.call('HMGET', episode_key(ARGV[1]), 'marks', 'calls')
local marks = f[1] or ''
local counted = string.match(marks, ARGV[3] .. '=(%d+)')
if counted then return tonumber(counted) end
if tonumber(f[2]) + n > tonumber(redis.call('HGET', KEYS[1], 'max_calls')) then return -2 end
local first = redis.call('HINCRBY', episode_key(ARGV[1]), 'calls', n) - n + 1
local kept = string.match(marks, '^' .. string.rep('%S+ ', KEPT - 1)) or marks
redis.call('HSET', episode_key(ARGV[1]), 'marks', ARGV[3] .. '=' .. first .. ' ' .. kept)
return first
