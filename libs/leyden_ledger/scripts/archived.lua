-- ARGV: number of the archive, episodes in it, order of the last. 0: the run has work again, or a newer archive.
local f = redis.call('HMGET', KEYS[1], 'state', 'archive')
if (f[1] ~= 'finished' and f[1] ~= 'cancelled') or tonumber(f[2] or 0) >= tonumber(ARGV[1]) then return 0 end
if unfinished() > 0 then return 0 end
redis.call('HSET', KEYS[1], 'archive', ARGV[1], 'archived', ARGV[2], 'archived_order', ARGV[3])
return 1
