-- ARGV: number, version, predecessor or '', the promotion as JSON. Numbers follow each other without a gap, so of two
-- writers of the same number only one is taken. 1: taken; 0: known; -1: not the next one.
local last = tonumber(redis.call('HGET', KEYS[1], 'promotions') or 0)
local number = tonumber(ARGV[1])
if number <= last then return redis.call('LINDEX', key('promotions'), number - 1) == ARGV[4] and 0 or -1 end
if number ~= last + 1 then return -1 end
redis.call('HSET', KEYS[1], 'promotions', ARGV[1], 'best', ARGV[2])
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[1], 'predecessor')
else
  redis.call('HSET', KEYS[1], 'predecessor', ARGV[3])
end
redis.call('RPUSH', key('promotions'), ARGV[4])
emit('kind', 'promotion', 'version', ARGV[2], 'number', ARGV[1])
return 1
